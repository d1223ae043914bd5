"""From start to shutdown: the state of one queue, and who may use it when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from enum import Enum
from typing import Generic, TypeVar

from batchqueue_async._engine.capacity import Capacities, Permit
from batchqueue_async._engine.closing import Closing
from batchqueue_async._engine.crew import Crew
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.drain_task import DrainTask, Work
from batchqueue_async._engine.forking import disown_after_fork
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.keeper import Keeper, Kept
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import outside
from batchqueue_async._engine.stats import RebalancingRound
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.drain_tasks import SharedDrainTasks
from batchqueue_async._policies.errors import BatchQueueError

T = TypeVar("T")


# What drain tasks hold that share no capacity.
_NO_LIMIT = nullcontext()


class State(Enum):
    """Where a queue is in its life; it only goes on, never back."""

    NEW = "new"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    INHERITED = "inherited by a forked child"


class Lifecycle(Generic[T]):
    """The state of a queue, and its tasks while it has any."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_closing_task",
        "_config",
        "_crew",
        "_layout",
        "_left",
        "_queue",
        "_tells_leftovers",
        "delivery",
        "hooks",
        "loop",
        "name",
        "on_closed",
        "own_work",
        "state",
    )

    def __init__(
        self,
        queue: Kept,
        config: BatchQueueConfig[T],
        layout: Layout[T],
    ) -> None:
        self._queue = queue
        self.name = queue.name
        self._config = config
        self._layout = layout
        self.state = State.NEW
        self.loop: asyncio.AbstractEventLoop | None = None
        self.own_work = OwnWork(queue, layout.ownership)
        self.hooks = Hooks(self.own_work, self.name, config, on_release=self.wake)
        self.delivery = Delivery(
            self.own_work, self.name, config, layout.failures, on_release=self.wake
        )
        self._crew: Crew[T] | None = None
        self._closing: Closing[T] | None = None
        self._closing_task: asyncio.Task[None] | None = None
        self._left: list[T] = []
        self._tells_leftovers = False
        # A manager's, so that it does not keep what its user has shut down.
        self.on_closed: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether shutdown has begun, or the queue is not this process's."""
        return self.state not in (State.NEW, State.RUNNING)

    @property
    def drain_tasks(self) -> list[DrainTask[T]]:
        return [] if self._crew is None else self._crew.drain_tasks

    @property
    def last_round(self) -> RebalancingRound | None:
        rebalancer = None if self._crew is None else self._crew.rebalancer
        return None if rebalancer is None else rebalancer.last_round

    async def start(self, capacities: Capacities) -> None:
        if self.state is State.RUNNING:
            self.require_own_loop()
            return
        if self.state is not State.NEW:
            msg = f"queue {self.name!r} was shut down and cannot be started again"
            raise BatchQueueError(msg)
        self.loop = asyncio.get_running_loop()
        self.state = State.RUNNING
        if isinstance(self._config.drain_tasks, SharedDrainTasks):
            self.own_work.permit = Permit(capacities.of(self._config.drain_tasks))
            self.own_work.permit.capacity.join()
        disown_after_fork(self)
        permit = self.own_work.permit or _NO_LIMIT
        work = Work(self.delivery, self.hooks, self.own_work, permit)
        self._crew = Crew(self.name, self._config, self._layout, work)
        self._layout.open(self._time_here)
        await Keeper.of(self.loop).keep(self._queue)

    def _time_here(self) -> float | None:
        """Return the loop's time; None on other threads, where it may be an old one."""
        loop = self.loop
        if loop is None or asyncio._get_running_loop() is not loop:  # noqa: SLF001
            return None
        return loop.time()

    def running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that a started queue is bound to."""
        assert self.loop is not None
        return self.loop

    def notice(self, partition: Partition[T]) -> None:
        if self._crew is not None:
            self._crew.notice(partition)

    def notice_all(self, partitions: list[Partition[T]]) -> None:
        if self._crew is not None and partitions:
            self._crew.notice_all(partitions)

    def wake(self) -> None:
        if self._crew is not None:
            self._crew.wake()

    def admits(self) -> bool:
        """Whether items may come in now; False once shutdown has begun.

        Raises:
            BatchQueueError: Not started, or the caller is not on the queue's loop.
        """
        if self.state is State.RUNNING:
            if asyncio._get_running_loop() is not self.loop:  # noqa: SLF001
                self.require_own_loop()
            return True
        if self.state is State.NEW:
            msg = f"queue {self.name!r} is not started"
            raise BatchQueueError(msg)
        self.refuse_fork()
        return False

    def refuse_fork(self) -> None:
        """Refuse to be used in a forked child.

        Raises:
            BatchQueueError: This is one, and the queue is its parent's.
        """
        if self.state is State.INHERITED:
            msg = (
                f"queue {self.name!r} is its parent process's: a forked child makes "
                "queues of its own"
            )
            raise BatchQueueError(msg)

    def require_own_loop(self) -> None:
        """Refuse callers from other threads and loops, while that matters.

        Raises:
            BatchQueueError: The running loop is not the queue's.
        """
        if self.state not in (State.RUNNING, State.CLOSING):
            return
        try:
            is_own = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_own = False
        if not is_own:
            msg = (
                f"queue {self.name!r} was used from outside of its event loop; "
                "other threads go through a SyncBatchQueue"
            )
            raise BatchQueueError(msg)

    def disown(self) -> None:
        """Become unusable and empty: this is a forked child."""
        if self.state is not State.CLOSED:
            self.state = State.INHERITED
        self._layout.disown()
        if self.loop is not None:
            Keeper.of(self.loop).forget(self._queue)

    async def shutdown(self, timeout: float | None) -> list[T]:
        if self.state is State.NEW:
            self.state = State.CLOSED
            self._layout.close()
        self.require_own_loop()
        if self._crew is None or self.state is State.INHERITED:
            return []
        task = self._begin_closing(self._crew, timeout)
        if self.own_work.is_inside:
            return []
        wait = self.own_work.end(task)
        if wait is None:
            await asyncio.shield(task)
        else:
            async with wait:
                wait.begin()
                await wait.until(task)
        left, self._left = self._left, []
        return left

    def hurry(self, timeout: float) -> None:
        """Bring the deadline of a shutdown that is under way forward."""
        if self._closing is not None:
            self._closing.end_within(timeout)

    async def close(self, timeout: float | None) -> None:
        """Shut down; leftovers are logged and passed on, so none is silent.

        Also when the caller is cancelled meanwhile: nobody takes the list then.
        """
        self._tells_leftovers = True
        await self.shutdown(timeout)

    def _begin_closing(
        self, crew: Crew[T], timeout: float | None
    ) -> asyncio.Task[None]:
        if (
            self._closing is None
            or self._closing_task is None
            or self._closing_task.cancelled()
        ):
            self.state = State.CLOSING
            self._layout.close()
            self._closing = Closing(self.name)
            body = self._close(crew, self._closing)
            self._closing_task = outside(asyncio.get_running_loop().create_task, body)
            crew.begin_closing()
        self._closing.end_within(timeout)
        return self._closing_task

    async def _close(self, crew: Crew[T], closing: Closing[T]) -> None:
        left = await closing.run(crew, self._layout, self.hooks)
        self._layout.failures.add("returned", left)
        if left and self._tells_leftovers:
            await self.delivery.tell_leftovers(left)
        else:
            self._left = left
        await crew.end()
        self.state = State.CLOSED
        # Once, although a cancelled closing is begun again.
        permit, self.own_work.permit = self.own_work.permit, None
        if permit is not None:
            permit.capacity.leave()
        await Keeper.of(asyncio.get_running_loop()).release(self._queue)
        if self.on_closed is not None:
            self.on_closed()
