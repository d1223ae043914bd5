"""What a live view shows: samples with rates and events, made while somebody looks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from batchqueue_async._engine.handler_stats import HandlerStats
from batchqueue_async._engine.stats import (
    BatchQueueStats,
    DrainTaskStats,
    RebalancingRound,
)
from batchqueue_async._policies.validation import require_positive
from batchqueue_async.telemetry._source import PATIENCE, Reading, Source, Target

Sample = dict[str, Any]
"""Plain values only: it travels as JSON."""

INTERVAL: Final = 1.0
MOST_QUEUES: Final = 60
MOST_HANDLERS: Final = 40
MOST_CELLS: Final = 240
"""So much is shown at once, whatever there is: the fullest and the busiest."""
MOST_FULL: Final = 12
KEPT_SAMPLES: Final = 120
KEPT_EVENTS: Final = 100

_COUNTS = (
    *("accepted", "rejected", "handled", "failed", "dropped"),
    *("unhandled", "returned", "retried"),
)
_NOW = ("waiting", "in_flight", "capacity", "unaccounted")
_BAD = ("rejected", "failed", "dropped", "unhandled", "returned", "retried")


class Feed:
    """Samples of a target: one per interval, however many look; none if nobody does.

    Any thread may ask. A sample whose time has come is taken by who asks for it.
    """

    def __init__(
        self,
        target: Target,
        *,
        interval: float = INTERVAL,
        patience: float = PATIENCE,
    ) -> None:
        require_positive("interval", interval)
        require_positive("patience", patience)
        self.interval = interval
        self._source = Source(
            target, patience=patience, partitions=MOST_FULL, handlers=MOST_HANDLERS
        )
        self._lock = threading.Lock()
        self._taken_at = float("-inf")
        self._sample: Sample = {}
        # By identity: two queues may have one name.
        self._before: dict[object, tuple[float, BatchQueueStats, bool]] = {}
        self._events: deque[Sample] = deque(maxlen=KEPT_EVENTS)
        self._event_count = 0
        self._history: deque[Sample] = deque(maxlen=KEPT_SAMPLES)

    def sample(self) -> Sample:
        """Return the latest sample, taken now if that is due."""
        with self._lock:
            if time.monotonic() - self._taken_at >= self.interval * 0.9:
                self._take()
            return self._sample

    def history(self) -> list[Sample]:
        """Return the course of each queue's main figures so far, oldest first."""
        with self._lock:
            return list(self._history)

    def _take(self) -> None:
        readings = self._source.read()
        now = self._taken_at = time.monotonic()
        readings.sort(key=lambda each: -each.stats.waiting)
        queues = [self._queue(each, now) for each in readings]
        self._sample = {
            "time": time.time(),
            "queues": queues[:MOST_QUEUES],
            "queue_count": len(queues),
            "events": list(self._events),
        }
        shown = ("name", "waiting", "in_flight")
        self._history.append(
            {
                "time": self._sample["time"],
                "queues": [
                    {key: each[key] for key in shown} | {"rates": each["rates"]}
                    for each in queues[:MOST_QUEUES]
                ],
            }
        )
        known = {each.identity for each in readings}
        self._before = {k: v for k, v in self._before.items() if k in known}

    def _queue(self, reading: Reading, now: float) -> Sample:
        stats = reading.stats
        before = self._before.get(reading.identity)
        rates = dict.fromkeys(_COUNTS, 0.0)
        if before is not None:
            seconds = max(now - before[0], 1e-9)
            for count in _COUNTS:
                grown = getattr(stats, count) - getattr(before[1], count)
                # Another queue of this name may be younger.
                rates[count] = max(0, grown) / seconds
            self._note_events(stats, before[1])
        was_blocked = before is not None and before[2]
        if was_blocked is reading.loop_responds:
            says = "answers again" if reading.loop_responds else "does not answer"
            self._note(stats.name, "loop", f"its loop {says}")
        self._before[reading.identity] = (now, stats, not reading.loop_responds)
        return _shown(reading, rates)

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
        """Tell of limits that were lowered by what a server did."""
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


def _shown(reading: Reading, rates: dict[str, float]) -> Sample:
    stats = reading.stats
    last = stats.last_round
    return {
        "name": stats.name,
        "blocked": not reading.loop_responds,
        "rates": rates,
        **{name: getattr(stats, name) for name in (*_COUNTS, *_NOW)},
        "partition_count": len(reading.overview.used_fractions),
        "cells": _cells(reading.overview.used_fractions),
        "fullest": [
            [each.index, each.waiting, each.capacity, each.owner]
            for each in stats.partitions
        ],
        "drain_tasks": [_drain_task(each) for each in stats.drain_tasks],
        "handlers": [_handler(each) for each in stats.handlers],
        "handler_count": reading.overview.handler_count,
        "last_round": last and f"round {last.number} of rebalancing: {_moves(last)}",
        "not_closed": list(stats.not_closed),
    }


def _moves(last: RebalancingRound) -> str:
    # As text: beside a drain task without any load a ratio is infinite, which JSON
    # has no word for.
    ratios = f"{last.ratio_before:.2f} to {last.ratio_after:.2f}"
    return f"{last.moved} partitions moved, {ratios}"


def _cells(used: Sequence[float]) -> list[list[float]]:
    """Return how full each partition is, or each run of neighbours: fullest, mean."""
    per_cell = max(1, -(-len(used) // MOST_CELLS))
    runs: Iterable[Sequence[float]] = (
        used[start : start + per_cell] for start in range(0, len(used), per_cell)
    )
    return [[round(max(run), 4), round(sum(run) / len(run), 4)] for run in runs]


def _drain_task(stats: DrainTaskStats) -> Sample:
    return {
        "index": stats.index,
        "partitions": len(stats.partitions),
        "cycles": stats.cycles,
        "busy": stats.busy,
        "load": stats.load,
    }


def _handler(stats: HandlerStats) -> Sample:
    cuts, limit = stats.cuts, stats.limit
    return {
        "name": stats.name,
        "batches": stats.batches,
        "items": stats.items,
        "retried": stats.retried,
        "limit": limit and {"max_batch": limit.max_batch, "reason": limit.reason},
        "mean_seconds": None if stats.seconds is None else stats.seconds.mean,
        "cuts": cuts
        and {
            name: getattr(cuts, name)
            for name in ("full", "due", "linger", "flush", "close")
        },
    }
