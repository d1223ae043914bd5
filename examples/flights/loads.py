"""Watches the queues while they work: for the live display and for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Any, Self

from batchqueue_async import BatchQueueStats, SyncBatchQueue

_INTERVAL = 0.1
# At twice as many, every other one is forgotten and the interval doubles: a run of
# hours needs no more memory than one of seconds.
_KEEP = 600


@dataclass(frozen=True, slots=True)
class Load:
    """All queues at one moment, in seconds since the start."""

    at: float
    queues: Mapping[str, BatchQueueStats]


class LoadRecorder:
    """Takes the statistics of every queue at regular intervals, on its own thread."""

    def __init__(self, queues: Mapping[str, SyncBatchQueue[Any]]) -> None:
        self._queues = queues
        self._started = monotonic()
        self._interval = _INTERVAL
        self._stopped = Event()
        self._thread = Thread(target=self._record, name="load recorder", daemon=True)
        self.loads: list[Load] = [self._take()]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.loads.append(self._take())

    @property
    def latest(self) -> Load:
        """What the queues looked like last."""
        return self.loads[-1]

    def rate(self, name: str) -> float:
        """Return how many items per second a queue handled during the last second."""
        now = self.latest
        before = next(
            (load for load in reversed(self.loads) if load.at <= now.at - 1.0),
            self.loads[0],
        )
        handled = now.queues[name].handled - before.queues[name].handled
        return handled / (now.at - before.at) if now.at > before.at else 0.0

    def peak(self, name: str) -> int:
        """Return how many items waited in a queue at most, as far as was seen."""
        return max(load.queues[name].waiting for load in self.loads)

    def _record(self) -> None:
        while not self._stopped.wait(self._interval):
            self.loads.append(self._take())
            if len(self.loads) >= 2 * _KEEP:
                self.loads = self.loads[::2]
                self._interval *= 2

    def _take(self) -> Load:
        stats = {name: queue.stats() for name, queue in self._queues.items()}
        return Load(monotonic() - self._started, stats)
