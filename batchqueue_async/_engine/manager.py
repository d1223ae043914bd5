"""Queues by name: created together, found again, closed in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from batchqueue_async._engine.capacity import Capacities
from batchqueue_async._engine.handler_waits import AllEndWait
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.queue import BatchQueue
from batchqueue_async._engine.reentrancy import current_call
from batchqueue_async._engine.wait_for_graph import Node
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.errors import ConfigConflict, DuplicateQueue
from batchqueue_async._policies.items import T


class BatchQueueManager:
    """The queues of one application, or of one part of it.

    Use it as `async with BatchQueueManager() as manager`: leaving it shuts all its
    queues down. There is no global one.
    """

    def __init__(self) -> None:
        # In order of creation, which shutdown reverses.
        self._queues: dict[str, BatchQueue[Any]] = {}
        self._warned: set[str] = set()
        self._closing: BatchQueue[Any] | None = None
        self._deadline: float | None = None
        self._turn = asyncio.Lock()
        self._capacities = Capacities()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def create(
        self, name: str, config: BatchQueueConfig[T] | None = None
    ) -> BatchQueue[T]:
        """Create and start a queue.

        Raises:
            DuplicateQueue: The name is taken; nothing was started.
        """
        if name in self._queues:
            msg = f"name must be unique in its manager, got {name!r} twice"
            raise DuplicateQueue(msg)
        queue = BatchQueue(name, config)
        queue.share_drain_tasks(self._capacities)
        queue.tell_when_closed(partial(self._forget, queue))
        self._queues[name] = queue
        try:
            await queue.start()
        except BaseException:
            del self._queues[name]
            raise
        return queue

    async def get_or_create(
        self, name: str, config: BatchQueueConfig[T] | None = None
    ) -> BatchQueue[T]:
        """Return the queue of this name, created and started if there is none.

        Other settings than the existing queue's are ignored, with one warning.

        Raises:
            ConfigConflict: One of both has a consumer, the other handlers by type.
        """
        existing = self._queues.get(name)
        if existing is None:
            return await self.create(name, config)
        wanted = BatchQueueConfig() if config is None else config
        self._compare(name, existing.config, wanted)
        return existing

    def get(self, name: str) -> BatchQueue[Any] | None:
        """Return the queue of this name, or None."""
        return self._queues.get(name)

    async def shutdown(self, name: str, timeout: float | None = 30.0) -> list[Any]:
        """Shut one queue down; its name is free at once.

        Returns:
            What the deadline left unhandled; [] if there is no such queue.
        """
        queue = self._queues.pop(name, None)
        self._warned.discard(name)
        return [] if queue is None else await queue.shutdown(timeout)

    async def shutdown_all(self, timeout: float | None = 30.0) -> dict[str, list[Any]]:
        """Shut all queues down, the last created first, so that chains drain.

        One deadline holds for all together. A queue that fails to shut down is logged,
        and the others follow.

        Returns:
            What the deadline left unhandled, by queue name.

        Raises:
            WouldDeadlock: A handler would wait for another shutdown that waits for it;
                that one goes on.
        """
        leftovers: dict[str, list[Any]] = {}

        async def shut_down(queue: BatchQueue[Any], left: float | None) -> None:
            leftovers[queue.name] = await queue.shutdown(left)

        await self._each_in_turn(shut_down, timeout)
        return leftovers

    async def close(self, timeout: float | None = 30.0) -> None:
        """Shut all queues down; leftovers are logged and passed to `on_error`."""
        await self._each_in_turn(BatchQueue.close, timeout)

    def hurry(self, timeout: float = 0.0) -> None:
        """Bring the deadline of shutdowns that are under way forward."""
        deadline = asyncio.get_running_loop().time() + timeout
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        if self._closing is not None:
            self._closing.hurry(timeout)

    async def _each_in_turn(
        self,
        end: Callable[[BatchQueue[Any], float | None], Awaitable[None]],
        timeout: float | None,
    ) -> None:
        if timeout is not None:
            self.hurry(timeout)
        # A second call waits for the first one: queues end one after the other.
        async with self._own_turn():
            while self._queues:
                name, self._closing = self._queues.popitem()
                try:
                    await end(self._closing, self._time_left())
                except Exception:  # noqa: BLE001 - one failure does not stop the rest
                    logger.exception("queue %r failed to shut down", name)
                finally:
                    self._closing = None
            self._deadline = None

    @contextlib.asynccontextmanager
    async def _own_turn(self) -> AsyncIterator[None]:
        call = current_call()
        if call is None or not self._turn.locked():
            async with self._turn:
                yield
            return
        # A handler waits for all that are to end before, and for who ends them.
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            async with AllEndWait(call, self._ends) as wait:
                wait.begin()
                await wait.until(turn)
            yield
        finally:
            if turn.done():
                self._turn.release()
            turn.cancel()

    def _ends(self) -> list[Node]:
        closing = () if self._closing is None else (self._closing,)
        queues = (*closing, *self._queues.values())
        return [node for queue in queues for node in queue.end_nodes()]

    def _forget(self, queue: BatchQueue[Any]) -> None:
        # Its name may be another queue's by now.
        if self._queues.get(queue.name) is queue:
            del self._queues[queue.name]
            self._warned.discard(queue.name)

    def _time_left(self) -> float | None:
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    def _compare(
        self, name: str, existing: BatchQueueConfig[Any], wanted: BatchQueueConfig[Any]
    ) -> None:
        if (existing.consumer is None) != (wanted.consumer is None):
            msg = f"queue {name!r} exists and dispatches to " + (
                "handlers by type" if existing.consumer is None else "a consumer"
            )
            raise ConfigConflict(msg)
        if existing != wanted and name not in self._warned:
            self._warned.add(name)
            logger.warning(
                "queue %r exists with other settings, which stay: %s",
                name,
                _differences(existing, wanted),
            )


def _differences(existing: BatchQueueConfig[Any], wanted: BatchQueueConfig[Any]) -> str:
    return ", ".join(
        f"{field}={getattr(existing, field)!r} (not {getattr(wanted, field)!r})"
        for field in existing.__dataclass_fields__
        if getattr(existing, field) != getattr(wanted, field)
    )
