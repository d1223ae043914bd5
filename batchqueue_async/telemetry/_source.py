"""Statistics of whatever is watched, read from whatever thread asks."""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import _get_running_loop
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from batchqueue_async._bridge.loop_thread import LoopThread, manager_of
from batchqueue_async._bridge.sync_queue import SyncBatchQueue
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.stats import BatchQueueStats

Target = BatchQueue[Any] | SyncBatchQueue[Any] | BatchQueueManager | LoopThread
"""What can be watched: one queue, or all that somebody manages."""

PATIENCE = 0.5


@dataclass(frozen=True, slots=True)
class Reading:
    """One queue at one moment."""

    stats: BatchQueueStats
    loop_responds: bool
    """Whether its loop answered. If not, a handler blocks it, or it has ended: the
    figures were read past it, and threads may have changed some meanwhile."""


class Source:
    """The queues of a target.

    Args:
        target: A queue, from either side, a manager, or a LoopThread.
        patience: Seconds that a loop gets to answer.

    Raises:
        TypeError: The target is none of these.
    """

    def __init__(self, target: Target, *, patience: float = PATIENCE) -> None:
        known = (BatchQueue, SyncBatchQueue, BatchQueueManager, LoopThread)
        if not isinstance(cast("object", target), known):
            msg = (
                "target must be a BatchQueue, a SyncBatchQueue, a BatchQueueManager or "
                f"a LoopThread, got {type(target).__qualname__}"
            )
            raise TypeError(msg)
        self.target: Target = target
        self._patience = patience
        self._process = os.getpid()

    def queues(self) -> list[BatchQueue[Any]]:
        """Return the queues that there are now."""
        target = self.target
        if isinstance(target, SyncBatchQueue):
            return [target.queue]
        if isinstance(target, BatchQueue):
            return [target]
        manager = manager_of(target) if isinstance(target, LoopThread) else target
        return [] if manager is None else list(manager.queues)

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
            return _read(queues, loop_responds=True)
        asked = _Asked(queues)
        try:
            loop.call_soon_threadsafe(asked.answer)
        except RuntimeError:
            # Closed: nothing changes any more.
            return _read(queues, loop_responds=False)
        if asked.answered.wait(self._patience):
            return asked.readings
        return _read(queues, loop_responds=False)


class _Asked:
    """A question to a loop."""

    def __init__(self, queues: list[BatchQueue[Any]]) -> None:
        self._queues = queues
        self.answered = threading.Event()
        self.readings: list[Reading] = []

    def answer(self) -> None:
        self.readings = _read(self._queues, loop_responds=True)
        self.answered.set()


def _read(queues: list[BatchQueue[Any]], *, loop_responds: bool) -> list[Reading]:
    return [Reading(queue.stats(), loop_responds) for queue in queues]
