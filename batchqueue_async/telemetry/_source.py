"""Statistics of whatever is watched, read from whatever thread asks."""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from batchqueue_async._bridge.loop_thread import LoopThread, manager_of
from batchqueue_async._bridge.sync_queue import SyncBatchQueue
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._engine.overview import Overview, overview
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.stats import BatchQueueStats

Queue = BatchQueue[Any] | SyncBatchQueue[Any]
Target = Queue | Sequence[Queue] | BatchQueueManager | LoopThread
"""What can be watched: queues, or all that somebody manages."""

PATIENCE = 0.5

_QUEUES = (BatchQueue, SyncBatchQueue)


@dataclass(frozen=True, slots=True)
class Reading:
    """One queue at one moment."""

    identity: int
    """Of the queue: there may be another one of its name."""
    overview: Overview
    loop_responds: bool
    """Whether its loop answered. If not, a handler blocks it, or it has ended: the
    figures were read past it, and threads may have changed some meanwhile."""

    @property
    def stats(self) -> BatchQueueStats:
        """Its sums, its fullest partitions and its busiest handlers."""
        return self.overview.stats


class Source:
    """The queues of a target.

    Args:
        target: A queue, from either side, several, a manager, or a LoopThread.
        patience: Seconds that a loop gets to answer.
        partitions: How many of each queue's partitions are looked at, the fullest.
        handlers: How many of its handlers, the busiest; None for all.

    Raises:
        TypeError: The target is none of these.
    """

    def __init__(
        self,
        target: Target,
        *,
        patience: float = PATIENCE,
        partitions: int = 1,
        handlers: int | None = None,
    ) -> None:
        _require_target(target)
        self.target: Target = target
        self._patience = patience
        self._process = os.getpid()
        self._overview = partial(overview, partitions=partitions, handlers=handlers)

    def queues(self) -> list[BatchQueue[Any]]:
        """Return the queues that there are now."""
        target = self.target
        if isinstance(target, LoopThread):
            manager = manager_of(target)
            return [] if manager is None else list(manager.queues)
        if isinstance(target, BatchQueueManager):
            return list(target.queues)
        queues = [target] if isinstance(target, _QUEUES) else target
        return [
            each.queue if isinstance(each, SyncBatchQueue) else each for each in queues
        ]

    def read(self) -> list[Reading]:
        """Return what all queues look like now.

        Each loop is asked once, and waited for: on other threads for `patience` seconds
        at most.
        """
        by_loop: dict[asyncio.AbstractEventLoop | None, list[BatchQueue[Any]]] = {}
        for queue in self.queues():
            by_loop.setdefault(parts_of(queue).loop, []).append(queue)
        return [
            reading
            for loop, queues in by_loop.items()
            for reading in self._read_on(loop, queues)
        ]

    def _read_on(
        self, loop: asyncio.AbstractEventLoop | None, queues: list[BatchQueue[Any]]
    ) -> Iterable[Reading]:
        # In a forked child the parent's loop must not even be woken.
        is_own = self._process == os.getpid()
        if loop is None or loop is _get_running_loop() or not is_own:
            return self._look_at(queues, loop_responds=True)
        asked = _Asked(partial(self._look_at, queues, loop_responds=True))
        try:
            loop.call_soon_threadsafe(asked.answer)
        except RuntimeError:
            # Closed: nothing changes any more.
            return self._look_at(queues, loop_responds=False)
        if asked.answered.wait(self._patience):
            return asked.readings
        return self._look_at(queues, loop_responds=False)

    def _look_at(
        self, queues: list[BatchQueue[Any]], *, loop_responds: bool
    ) -> list[Reading]:
        return [
            Reading(id(queue), self._overview(parts_of(queue)), loop_responds)
            for queue in queues
        ]


def _require_target(target: object) -> None:
    if isinstance(target, (*_QUEUES, BatchQueueManager, LoopThread)):
        return
    wrong = [target]
    if isinstance(target, Sequence) and not isinstance(target, str | bytes):
        wrong = [each for each in target if not isinstance(each, _QUEUES)]
    if wrong:
        msg = (
            "target must be a BatchQueue or SyncBatchQueue, a sequence of them, a "
            f"BatchQueueManager or a LoopThread, got {type(wrong[0]).__qualname__}"
        )
        raise TypeError(msg)


class _Asked:
    """A question to a loop."""

    def __init__(self, look: Callable[[], list[Reading]]) -> None:
        self._look = look
        self.answered = threading.Event()
        self.readings: list[Reading] = []

    def answer(self) -> None:
        self.readings = self._look()
        self.answered.set()
