"""Queues by name: created together, found again, closed in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, Self, TypeAlias

from batchqueue_async._deprecated import deprecated
from batchqueue_async._engine.draining.shared_drain_tasks import SharedPermits
from batchqueue_async._engine.handlers.deadlock_detector import EndWait
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    current_call,
    handler_call,
)
from batchqueue_async._engine.handlers.wait_for_graph import Node, end_of
from batchqueue_async._engine.lifecycle.state import State
from batchqueue_async._engine.manager_flush import reporting, settle_all
from batchqueue_async._engine.manager_shutdown import ManagerShutdown
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.stats import BatchQueueStats
from batchqueue_async._log import logger
from batchqueue_async._one_process import OfOneProcess
from batchqueue_async._policies.choices import SHUTDOWN_TIMEOUT, Timeout
from batchqueue_async._policies.config import DEFAULTS, BatchQueueConfig
from batchqueue_async._policies.errors import ConfigConflict, DuplicateQueue
from batchqueue_async._policies.items import T
from batchqueue_async._shielding import Shielded
from batchqueue_async._validation import require_timeout
from batchqueue_async._wording import shown

Tell: TypeAlias = Callable[[BatchQueue[Any]], None]


class BatchQueueManager(OfOneProcess):
    """The queues of one application, or of one part of it.

    Use it as `async with BatchQueueManager() as manager`: leaving it shuts all its
    queues down. There is no global one.

    Args:
        shutdown_timeout: Seconds for all queues together until leaving it, or `close`,
            cancels running handlers and gives up what is left; None for no deadline.

    Raises:
        TypeError, ValueError: The timeout is invalid.
    """

    def __init__(self, *, shutdown_timeout: float | None = 30.0) -> None:
        require_timeout("shutdown_timeout", shutdown_timeout)
        self._shutdown_timeout = shutdown_timeout
        # In order of creation, which shutdown reverses.
        self._queues: dict[str, BatchQueue[Any]] = {}
        # Queues whose shutdown is under way, or has left items that nobody fetched.
        self._ending: dict[int, BatchQueue[Any]] = {}
        self._warned: set[str] = set()
        self._closing: ManagerShutdown | None = None
        self._shared_permits = SharedPermits()
        # For telemetry: told of each queue before it starts, and when it is forgotten.
        self._told: list[tuple[Tell, Tell]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<BatchQueueManager of {list(self._queues)}>"

    async def create(
        self, name: str, config: BatchQueueConfig[T] | None = None
    ) -> BatchQueue[T]:
        """Create and start a queue.

        Raises:
            DuplicateQueue: The name is taken; nothing was started.
        """
        if name in self._queues:
            msg = (
                f"name must be unique in its manager or LoopThread, got {name!r} twice"
            )
            raise DuplicateQueue(msg)
        queue = BatchQueue(name, config)
        for tell, _ in self._told:
            tell(queue)
        lifecycle = parts_of(queue).lifecycle
        lifecycle.on_closed = partial(self._forget, queue)
        self._queues[name] = queue
        try:
            await lifecycle.start(self._shared_permits)
        except BaseException:
            if parts_of(queue).state is State.RUNNING:
                # Struck in between: it is ended with the others.
                self._ending[id(queue)] = queue
            self._queues.pop(name, None)
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
        wanted = DEFAULTS if config is None else config
        self._compare(name, existing.config, wanted)
        return existing

    def get(self, name: str) -> BatchQueue[Any] | None:
        """Return the queue of this name, or None."""
        return self._queues.get(name)

    @property
    def queues(self) -> tuple[BatchQueue[Any], ...]:
        """All queues, in order of creation, after those that are being shut down."""
        return (*self._ending.values(), *self._queues.values())

    def stats(self) -> dict[str, BatchQueueStats]:
        """Return the statistics of each queue, by name."""
        return {queue.name: queue.stats() for queue in self.queues}

    async def shutdown(self, name: str, timeout: float | None = 30.0) -> list[Any]:
        """Shut one queue down; its name is free at once.

        Cancelled, it goes on in the background, and `shutdown_all` and `close` wait for
        it. A second call waits, too, unless the name is another queue's by then.

        Returns:
            What the deadline left unhandled; [] if there is no such queue.

        Raises:
            TypeError, ValueError: The timeout is invalid; nothing is closed.
        """
        require_timeout("timeout", timeout)
        self._warned.discard(name)
        queue = self._queues.get(name)
        if queue is None:
            same = [each for each in self._ending.values() if each.name == name]
            queue = same[-1] if same else None
        if queue is None:
            return []
        self._move_to_ending(queue)
        return await queue.shutdown(timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Flush all queues, the last created first, so that chains are flushed through.

        As for shutdown, create a chain from its end to its start: then what a queue's
        handlers pass on during its flush is accepted before the next one's flush
        begins, and is covered by it, from stage to stage. Queues that are closing are
        flushed, too.

        Args:
            timeout: Seconds to wait at most, for all together.

        Raises:
            DeliveryError: Items ended other than handled since the last flush, here or
                by the `BatchQueue`. All queues have been flushed; it names those with
                failures, and counts them together.
            TimeoutError: Not all was settled in time; its cause is the DeliveryError of
                the queues before, if there was one.
            WouldDeadlock: A handler would wait for itself.
            TypeError, ValueError: The timeout is invalid.
        """
        require_timeout("timeout", timeout)
        with reporting() as flushed:
            await settle_all(self, timeout, flushed)

    async def shutdown_all(self, timeout: float | None = 30.0) -> dict[str, list[Any]]:
        """Shut all queues down, the last created first, so that chains drain.

        One deadline holds for all together; of concurrent calls the earliest. A queue
        that fails to shut down is logged, and the others follow. Cancelled, it goes on
        in the background, without its deadline: the next call brings its own. From a
        handler of one of the queues it only begins, and returns {} at once.

        Returns:
            What the deadline left unhandled, by queue name; of concurrent calls one
            gets it.

        Raises:
            WouldDeadlock: A handler of another queue would wait for itself; the
                shutdown goes on.
            TypeError, ValueError: The timeout is invalid; nothing is closed.
        """
        require_timeout("timeout", timeout)
        return await self._end_all(timeout, tells=False)

    async def close(self, timeout: Timeout = SHUTDOWN_TIMEOUT) -> None:
        """Shut all queues down; leftovers are logged and passed to `on_error`.

        Otherwise as `shutdown_all`. Cancel scopes of anyio around it do not cut it
        short. It takes `timeout` seconds at most, and for each queue that has something
        left then 0.1 s for its handlers and a second for its `on_error`.

        Args:
            timeout: Seconds for all queues together; None for no deadline. By default
                the manager's `shutdown_timeout`.

        Raises:
            TypeError, ValueError: The timeout is invalid; nothing is closed.
        """
        if timeout is SHUTDOWN_TIMEOUT:
            timeout = self._shutdown_timeout
        require_timeout("timeout", timeout)
        with Shielded():
            await self._end_all(timeout, tells=True)

    def shorten_deadline(self, timeout: float = 0.0) -> None:
        """Bring the deadline of shutdowns that are under way forward."""
        require_timeout("timeout", timeout)
        if self._is_closing and self._closing is not None:
            deadline = asyncio.get_running_loop().time() + timeout
            self._closing.begin(deadline, tells=False)
        for queue in self._ending.values():
            parts_of(queue).lifecycle.shorten_deadline(timeout)

    @deprecated("BatchQueueManager.hurry is shorten_deadline from 0.2 on")
    def hurry(self, timeout: float = 0.0) -> None:
        """Do as `shorten_deadline`: its old name, until 0.3."""
        self.shorten_deadline(timeout)

    @property
    def _is_closing(self) -> bool:
        return self._closing is not None and not self._closing.task.done()

    async def _end_all(
        self, timeout: float | None, *, tells: bool
    ) -> dict[str, list[Any]]:
        if not self._queues and not self._ending and not self._is_closing:
            return {}
        if asyncio._get_running_loop() is None:  # noqa: SLF001
            # A block that is collected after its loop: each queue tells what is left.
            return {}
        now = asyncio.get_running_loop().time()
        deadline = None if timeout is None else now + timeout
        if self._is_called_from_handler():
            self._current_closing().begin(deadline, tells=tells)
            return {}
        lists = None
        while lists is None:
            # Again if other code has cancelled the closing task, not its caller.
            closing = self._current_closing()
            lists = await closing.lists_within(deadline, self._wait_for, tells=tells)
        if tells:
            # Leftovers went back to their queues, since each caller of `shutdown_all`
            # was cancelled.
            for queue in list(self._ending.values()):
                if _has_leftovers(queue):
                    await queue.close(0.0)
        return lists

    def _current_closing(self) -> ManagerShutdown:
        if self._closing is None or self._closing.task.done():
            self._closing = ManagerShutdown(
                lambda: self.queues,
                self._next_to_end,
                lambda: list(self._ending.values()),
            )
        return self._closing

    def _is_called_from_handler(self) -> bool:
        return any(handler_call(parts_of(each).detector) for each in self.queues)

    def _next_to_end(
        self, seen: set[BatchQueue[Any]], among: set[BatchQueue[Any]] | None
    ) -> BatchQueue[Any] | None:
        """Return a queue that ends already, else the last created one."""
        for queue in chain(self._ending.values(), reversed(self._queues.values())):
            if queue not in seen and (among is None or queue in among):
                self._move_to_ending(queue)
                return queue
        return None

    def _move_to_ending(self, queue: BatchQueue[Any]) -> None:
        # In this order: what strikes in between leaves no queue that nobody knows.
        self._ending[id(queue)] = queue
        if self._queues.get(queue.name) is queue:
            del self._queues[queue.name]

    async def _wait_for(self, task: asyncio.Task[None]) -> None:
        call = current_call()
        if call is None:
            await asyncio.wait({task})
            return
        # A handler waits for all queues that are to end, and for what ends them.
        what = "the shutdown of all queues, which goes on"
        async with EndWait(call, self._ends, what) as wait:
            wait.begin()
            await wait.until(task)

    def _ends(self) -> list[Node]:
        detectors = [parts_of(each).detector for each in self.queues]
        return [node for each in detectors for node in end_of(each)]

    def _forget(self, queue: BatchQueue[Any]) -> None:
        """Drop a closed queue; keep it in `_ending` until its leftovers are fetched."""
        # Its name may be another queue's by now.
        is_current = self._queues.get(queue.name) is queue
        if is_current:
            del self._queues[queue.name]
            self._warned.discard(queue.name)
        if _has_leftovers(queue):
            self._ending[id(queue)] = queue
            return
        was_ending = self._ending.pop(id(queue), None) is not None
        for _, tell_end in self._told if is_current or was_ending else ():
            tell_end(queue)

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
                queue=name,
            )


def on_create(
    manager: BatchQueueManager, tell: Tell, tell_end: Tell
) -> Callable[[], None]:
    """Have each queue told, also existing ones, and as it is forgotten; not for users.

    One may be told twice: it is made on the manager's loop while this is called.

    Returns:
        A function that ends it.
    """
    both = tell, tell_end
    manager._told.append(both)  # noqa: SLF001
    for queue in manager.queues:
        tell(queue)
    return partial(manager._told.remove, both)  # noqa: SLF001


def _has_leftovers(queue: BatchQueue[Any]) -> bool:
    """Whether its shutdown left items that nobody has got so far."""
    return bool(parts_of(queue).lifecycle.leftovers)


def _differences(existing: BatchQueueConfig[Any], wanted: BatchQueueConfig[Any]) -> str:
    told = []
    for field in existing.__dataclass_fields__:
        stays, other = getattr(existing, field), getattr(wanted, field)
        if stays != other:
            stays, other = shown(stays), shown(other)
            # A function that was defined again, as by a notebook's cell.
            other = "another one like it" if other == stays else other
            told.append(f"{field}={stays} (not {other})")
    return ", ".join(told)
