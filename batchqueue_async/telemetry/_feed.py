"""What a live view shows: samples with rates and events, made while somebody looks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final

from batchqueue_async._engine.handler_stats import HandlerStats
from batchqueue_async._engine.lifecycle.state import ENDED, State
from batchqueue_async._engine.stats import BatchQueueStats, RebalancingRound
from batchqueue_async._validation import require_positive
from batchqueue_async.telemetry._metric_table import OUTCOMES
from batchqueue_async.telemetry._source import PATIENCE, Reading, Source, Target

Sample = dict[str, Any]
"""Plain values only: it travels as JSON."""

INTERVAL: Final = 1.0
MOST_QUEUES: Final = 60
MOST_HANDLERS: Final = 40
MOST_CELLS: Final = 240
"""The most queues, handlers and cells shown at once: the fullest and the busiest."""
MOST_FULL: Final = 12
KEPT_SAMPLES: Final = 120
KEPT_EVENTS: Final = 100

_COUNTS = ("accepted", "rejected", *OUTCOMES, "retried")
_NOW = ("waiting", "oldest_age", "in_flight", "capacity", "unaccounted")
_BAD = ("rejected", "failed", "dropped", "unhandled", "returned", "retried")

# How states are shown; that a queue runs is not worth a word.
_STATES = {State.NEW: "not started", State.RUNNING: ""}


@dataclass(frozen=True, slots=True)
class _Before:
    """What was seen of a queue the last time."""

    key: int
    """The number of the queue, since another one may have its name."""
    at: float
    stats: BatchQueueStats
    is_blocked: bool


class Feed:
    """Samples of a target: one per interval, however many look; none if nobody does.

    Any thread may ask. A sample that is due is taken by the thread that asks.
    """

    def __init__(
        self,
        target: Target,
        *,
        interval: float = INTERVAL,
        patience: float = PATIENCE,
    ) -> None:
        require_positive("interval", interval)
        self.interval = interval
        self._source = Source(
            target, patience=patience, partitions=MOST_FULL, handlers=MOST_HANDLERS
        )
        self._lock = threading.Lock()
        self._taken_at = float("-inf")
        self._sample: Sample = {}
        # By identity: two queues may have one name.
        self._before: dict[object, _Before] = {}
        self._next_key = 0
        self._events: deque[Sample] = deque(maxlen=KEPT_EVENTS)
        self._event_count = 0
        self._history: deque[Sample] = deque(maxlen=KEPT_SAMPLES)

    def sample(self, *, now: bool = False) -> Sample:
        """Return the latest sample, taken now if that is due, or wanted."""
        with self._lock:
            if now or time.monotonic() - self._taken_at >= self.interval * 0.9:
                self._take()
            return self._sample

    def history(self) -> list[Sample]:
        """Return the course of each queue's main figures so far, oldest first."""
        with self._lock:
            return list(self._history)

    def _take(self) -> None:
        readings = self._source.read()
        now = self._taken_at = time.monotonic()
        queues = fullest([self._queue(each, now) for each in readings], MOST_QUEUES)
        self._sample = {
            "time": time.time(),
            "interval": self.interval,
            "queues": queues,
            "queue_count": len(readings),
            "events": list(self._events),
        }
        self._history.append(main_figures(self._sample))
        known = {each.identity for each in readings}
        self._before = {k: v for k, v in self._before.items() if k in known}

    def _queue(self, reading: Reading, now: float) -> Sample:
        stats = reading.stats
        before = self._before.get(reading.identity)
        rates = dict.fromkeys(_COUNTS, 0.0)
        if before is not None:
            seconds = max(now - before.at, 1e-9)
            for count in _COUNTS:
                grown = getattr(stats, count) - getattr(before.stats, count)
                # Counts shrink where a younger queue has taken this one's place.
                rates[count] = max(0, grown) / seconds
            self._note_events(stats, before.stats)
        is_blocked = _is_blocked(reading)
        if is_blocked is not (before is not None and before.is_blocked):
            says = "does not answer" if is_blocked else "answers again"
            self._note(stats.name, "loop", f"its loop {says}")
        key = self._next_key if before is None else before.key
        self._next_key += before is None
        self._before[reading.identity] = _Before(key, now, stats, is_blocked)
        return _shown(reading, rates) | {"key": key}

    def _note_events(self, stats: BatchQueueStats, before: BatchQueueStats) -> None:
        for count in _BAD:
            grown = getattr(stats, count) - getattr(before, count)
            if grown > 0:
                self._note(stats.name, count, f"{grown} {count}")
        last, known = stats.last_round, before.last_round
        if last is not None and last.moved and last != known:
            self._note(stats.name, "rebalanced", _moves(last))
        self._note_limits(stats, before)
        active, was = stats.drain_task_limit, before.drain_task_limit
        if active and was and active.throttled > was.throttled:
            says = f"{active.drain_tasks} drain tasks are at work: throttled"
            self._note(stats.name, "limit", says)
        for name in stats.not_closed[len(before.not_closed) :]:
            self._note(stats.name, "not closed", name)

    def _note_limits(self, stats: BatchQueueStats, before: BatchQueueStats) -> None:
        """Note limits that were lowered because of how a server behaved."""
        known = {each.name: each.limit for each in before.handlers}
        for each in stats.handlers:
            now, then = each.limit, known.get(each.name)
            if now is None or then is None:
                continue
            for reason in ("slower", "throttled", "failed"):
                if getattr(now, reason) > getattr(then, reason):
                    says = f"{each.name} gets {now.max_batch} at a time: {reason}"
                    self._note(stats.name, "limit", says)

    def _note(self, queue: str, kind: str, text: str) -> None:
        self._event_count += 1
        self._events.append(
            {
                "number": self._event_count,
                "time": time.time(),
                "queue": queue,
                "kind": kind,
                "text": text,
            }
        )


def fullest(queues: Sequence[Sample], most: int) -> list[Sample]:
    """Return the queues with most items waiting, in the old order: rows don't jump."""
    found = nlargest(most, enumerate(queues), key=lambda each: each[1]["waiting"])
    return [queue for _, queue in sorted(found, key=itemgetter(0))]


def main_figures(sample: Sample) -> Sample:
    """Return the part of a sample that curves are drawn of."""
    shown = ("key", "name", "waiting", "in_flight", "rates")
    return {
        "time": sample["time"],
        "queues": [{name: each[name] for name in shown} for each in sample["queues"]],
    }


def _is_blocked(reading: Reading) -> bool:
    """Whether a queue's loop does not answer; that of an ended queue need not."""
    return not reading.loop_responds and reading.state not in ENDED


def _shown(reading: Reading, rates: dict[str, float]) -> Sample:
    stats = reading.stats
    last, active = stats.last_round, stats.drain_task_limit
    return {
        "name": stats.name,
        "state": _STATES.get(reading.state, reading.state.value),
        "blocked": _is_blocked(reading),
        "rates": rates,
        **{name: getattr(stats, name) for name in (*_COUNTS, *_NOW)},
        "partition_count": len(reading.overview.used_fractions),
        "cells": _cells(reading.overview.used_fractions),
        "fullest": [
            [each.index, each.waiting, each.capacity, each.owner]
            for each in stats.partitions
        ],
        "drain_tasks": [
            {
                "index": each.index,
                "partitions": len(each.partitions),
                "cycles": each.cycles,
                "load": each.load,
            }
            for each in stats.drain_tasks
        ],
        "drain_task_limit": active
        and {"drain_tasks": active.drain_tasks, "why": active.why},
        "handlers": [_handler(each) for each in stats.handlers],
        "handler_count": reading.overview.handler_count,
        "last_round": last and f"round {last.number} of rebalancing: {_moves(last)}",
    }


def _moves(last: RebalancingRound) -> str:
    # As text: the ratio is infinite if a drain task has no load, and JSON has no
    # infinity.
    ratios = f"load ratio {last.ratio_before:.2f} to {last.ratio_after:.2f}"
    return f"{last.moved} partitions moved, {ratios}"


def _cells(used: Sequence[float]) -> list[list[float]]:
    """Return how full each partition is, or each run of neighbours: fullest, mean."""
    per_cell = max(1, -(-len(used) // MOST_CELLS))
    runs: Iterable[Sequence[float]] = (
        used[start : start + per_cell] for start in range(0, len(used), per_cell)
    )
    return [[round(max(run), 4), round(sum(run) / len(run), 4)] for run in runs]


def _handler(stats: HandlerStats) -> Sample:
    limit = stats.limit
    return {
        "name": stats.name,
        "batches": stats.batches,
        "items": stats.items,
        "retried": stats.retried,
        "limit": limit
        and {"max_batch": limit.max_batch, "reason": limit.reason, "why": limit.why},
        "mean_seconds": None if stats.seconds is None else stats.seconds.mean,
    }
