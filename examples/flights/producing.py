"""Pushes events into the pipeline, no faster than asked, until told to stop."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator

from .events import Event
from .interruption import Interruption
from .pipeline import Pipeline

_BATCH = 5_000
_BATCHES_PER_SECOND = 10
# Sleeping longer would let a Ctrl-C wait.
_NAP = 0.05


def produce_all(
    pipeline: Pipeline,
    events: Iterable[list[Event]],
    events_per_second: float | None,
    interruption: Interruption,
) -> Counter[type[Event]]:
    """Return how many events of each type were produced."""
    produced: Counter[type[Event]] = Counter()
    started = None
    for batch in _batches(events, _batch_size(events_per_second)):
        # The clock starts with the first event: Spark takes seconds to find it.
        started = started or time.monotonic()
        if events_per_second is not None:
            _wait_until(started + produced.total() / events_per_second, interruption)
        if interruption.is_requested or pipeline.failure.error is not None:
            break
        pipeline.produce(batch)
        produced.update(type(event) for event in batch)
    return produced


def _batches(events: Iterable[list[Event]], size: int) -> Iterator[list[Event]]:
    for some in events:
        for start in range(0, len(some), size):
            yield some[start : start + size]


def _batch_size(events_per_second: float | None) -> int:
    if events_per_second is None:
        return _BATCH
    return min(_BATCH, max(1, round(events_per_second / _BATCHES_PER_SECOND)))


def _wait_until(due: float, interruption: Interruption) -> None:
    while not interruption.is_requested:
        left = due - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, _NAP))
