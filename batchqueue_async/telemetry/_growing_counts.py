"""Counters that only grow, though queues come and go.

A queue that ends takes its counts along, and the next one of its name begins at 0; of
two that have one name one may end, and a handler may take another's place. Whoever
reads takes a counter that fell for a restart, and counts what is left of it once more;
OpenTelemetry's SDK makes negative deltas of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from operator import add, lt, sub
from typing import Any, Final
from weakref import WeakKeyDictionary

from batchqueue_async._engine.runtime.forking import abandon_after_fork
from batchqueue_async.telemetry._metric_table import (
    METRICS,
    HistogramMetric,
    Metric,
    histograms_of,
    values_of,
)
from batchqueue_async.telemetry._source import Identity, Reading

Series = tuple[str, tuple[str, ...]]
"""A metric's name, and the values of its labels, the queue's first."""
Counts = tuple[float, ...]
"""One number; of a histogram those of its classes, and the total."""

_MOST_NAMES: Final = 1_000
"""Names of which no queue is there whose counts are kept, as each may have its own;
and of each queue, names of handlers that it has no more."""
_OF_PARTS: Final = {"handler", "drain_task"}
_OF_HANDLERS: Final = "batchqueue.handler."


class GrowingCounts:
    """What was counted under each name, by whatever queues had it.

    Any thread may ask.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._sums: dict[str, dict[Series, Counts]] = {}
        # What was seen of each queue: as long as it, or a reading of it, may be told.
        self._seen: WeakKeyDictionary[Identity, dict[Series, Counts]] = (
            WeakKeyDictionary()
        )
        self._seen_elsewhere: dict[object, dict[Series, Counts]] = {}
        abandon_after_fork(self)

    def values_of(
        self, metric: Metric, readings: Iterable[Reading]
    ) -> dict[tuple[str, ...], float]:
        """Return the metric's values by labels, the queue's first."""
        if metric.kind != "counter":
            return values_of(metric, readings)
        is_of_part = not _OF_PARTS.isdisjoint(metric.labels)
        found: dict[tuple[str, ...], float] = {}
        with self.lock:
            for each in readings:
                for labels, value in values_of(metric, [each]).items():
                    series = metric.name, labels
                    grown = self._grown(each, series, (value,), is_of_part=is_of_part)
                    (found[labels],) = grown
        return found

    def histograms_of(
        self, metric: HistogramMetric, readings: Iterable[Reading]
    ) -> dict[tuple[str, ...], Counts]:
        """Return each class's count, and then the total, by queue and handler."""
        found: dict[tuple[str, ...], Counts] = {}
        with self.lock:
            for each in readings:
                for labels, counts in histograms_of(metric, each).items():
                    series = metric.name, labels
                    found[labels] = self._grown(each, series, counts, is_of_part=True)
        return found

    def add(self, reading: Reading) -> None:
        """Have a queue counted that nobody will be told of by itself."""
        for metric in METRICS:
            self.values_of(metric, [reading])

    def forget(self, readings: Sequence[Reading]) -> None:
        """Keep no more names than may come again, beside those that are here."""
        with self.lock:
            here = {each.identity for each in readings}
            _keep_some(self._seen_elsewhere, here)
            handlers: dict[str, set[str]] = {}
            for each in readings:
                names = {handler.name for handler in each.stats.handlers}
                handlers.setdefault(each.stats.name, set()).update(names)
                _keep_some_handlers(self._seen_of(each), names)
            _keep_some(self._sums, handlers.keys())
            for queue, names in handlers.items():
                _keep_some_handlers(self._sums.get(queue, {}), names)

    def abandon(self) -> None:
        """Renew the lock in a forked child: whoever had it is not here."""
        self.lock = threading.Lock()

    def _grown(
        self, reading: Reading, series: Series, counts: Counts, *, is_of_part: bool
    ) -> Counts:
        """Return the sum with what has come since this queue was seen last."""
        nothing, seen = (0,) * len(counts), self._seen_of(reading)
        is_of_part = is_of_part or not isinstance(reading.identity, Identity)
        last = seen.get(series, nothing)
        if any(map(lt, counts, last)):
            if is_of_part:
                # Another handler of this name, or another queue elsewhere.
                last = nothing
            else:
                # A queue's own counts never fall: one of both looks was from another
                # thread, while they changed.
                counts = last
        seen[series] = counts
        sums = self._sums.setdefault(reading.stats.name, {})
        total = sums.get(series, nothing)
        sums[series] = total = tuple(map(add, total, map(sub, counts, last)))
        return total

    def _seen_of(self, reading: Reading) -> dict[Series, Counts]:
        if isinstance(reading.identity, Identity):
            return self._seen.setdefault(reading.identity, {})
        return self._seen_elsewhere.setdefault(reading.identity, {})


def _keep_some(known: dict[Any, Any], here: AbstractSet[Any]) -> None:
    gone = [each for each in known if each not in here]
    for each in gone[:-_MOST_NAMES]:
        del known[each]


def _keep_some_handlers(known: dict[Series, Counts], here: set[str]) -> None:
    # A name has a series at least, so most queues need no look at them.
    if len(known) <= _MOST_NAMES:
        return
    of: dict[str, list[Series]] = {}
    for series in known:
        metric, labels = series
        if metric.startswith(_OF_HANDLERS) and len(labels) > 1:
            of.setdefault(labels[1], []).append(series)
    gone = [name for name in of if name not in here]
    for name in gone[:-_MOST_NAMES]:
        for series in of[name]:
            del known[series]
