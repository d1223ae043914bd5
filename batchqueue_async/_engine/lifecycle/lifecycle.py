"""The start of a queue, and what the registry of its loop calls until its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.draining.permits import Permit, SharedPermits
from batchqueue_async._engine.lifecycle.shutdown import Shutdown
from batchqueue_async._engine.lifecycle.state import State, require_own_loop
from batchqueue_async._engine.runtime.forking import abandon_after_fork
from batchqueue_async._engine.runtime.loop_registry import LoopRegistry
from batchqueue_async._engine.runtime.loop_turn import clock_of
from batchqueue_async._engine.runtime.thread_use import ThreadUse
from batchqueue_async._policies.drain_tasks import SharedDrainTasks
from batchqueue_async._policies.errors import BatchQueueError

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")


class Lifecycle(Generic[T]):
    """Starts a queue; ends it with its loop, and in a forked child."""

    __slots__ = ("__weakref__", "_shutdown", "on_closed", "parts", "queue")

    def __init__(self, parts: Parts[T]) -> None:
        self.parts = parts
        self._shutdown: Shutdown[T] | None = None
        # What its user holds.
        self.queue: object = None
        # A manager's, so that it does not keep what its user has shut down.
        self.on_closed: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        return self.parts.name

    @property
    def shutdown(self) -> Shutdown[T]:
        """What ends it; made when asked for, so that an idle queue stays small."""
        if self._shutdown is None:
            self._shutdown = Shutdown(self.parts)
        return self._shutdown

    async def start(self, shared_permits: SharedPermits) -> None:
        """Bind the queue to the running loop, and drain from now on."""
        parts = self.parts
        if parts.state is State.RUNNING:
            require_own_loop(parts)
            return
        if parts.state is not State.NEW:
            msg = f"queue {parts.name!r} was shut down and cannot be started again"
            raise BatchQueueError(msg)
        parts.loop = asyncio.get_running_loop()
        parts.state = State.RUNNING
        drain_tasks = parts.config.drain_tasks
        if isinstance(drain_tasks, SharedDrainTasks):
            parts.detector.permit = Permit(shared_permits.pool_of(drain_tasks))
            parts.detector.permit.pool.join()
        abandon_after_fork(self)
        parts.detector.calls.clock = clock_of(parts.loop)
        parts.detector.calls.thread = ThreadUse.of(parts.loop)
        parts.tasks.start()
        parts.layout.open(self._time_here)
        if parts.config.threads:
            _open_to_threads(parts)
        await LoopRegistry.of(parts.loop).register(self)
        parts.handlers.attach(self, parts.detector)

    def _time_here(self) -> float | None:
        """Return the loop's time; None on other threads, where it may be an old one."""
        loop = self.parts.loop
        if loop is None or asyncio._get_running_loop() is not loop:  # noqa: SLF001
            return None
        return loop.time()

    def count_left(self) -> int:
        """Return how many items are waiting or in flight."""
        return sum(
            len(each.items) + each.accounts.in_flight for each in self.parts.partitions
        )

    async def end_with_loop(self) -> int | None:
        """Give up what is left: the loop ends now, and can still run."""
        return await self.shutdown.end_with_loop()

    def end_after_loop(self) -> int | None:
        """Give up what is left: the loop never runs again."""
        return self.shutdown.end_after_loop()

    def pause(self) -> None:
        """Let no handler be called any more: all tasks of the loop are cancelled."""
        self.parts.tasks.pause()

    def resume(self) -> None:
        """Start what was cancelled again: the loop lives on."""
        if self.parts.state is State.RUNNING:
            self.parts.tasks.revive()
        elif self._shutdown is not None:
            self._shutdown.resume()

    def abandon(self) -> None:
        """Become unusable and empty: this is a forked child."""
        parts = self.parts
        if parts.state is not State.CLOSED:
            parts.state = State.INHERITED
        parts.layout.abandon()
        if parts.loop is not None:
            LoopRegistry.of(parts.loop).forget(self)


_ways_to_open: list[Callable[[Parts[Any]], None]] = []


def opened_by(way: Callable[[Parts[Any]], None]) -> None:
    """Have queues opened to other threads in this way: the bridge's, which is above."""
    _ways_to_open[:] = [way]


def _open_to_threads(parts: Parts[Any]) -> None:
    for way in _ways_to_open:
        way(parts)
