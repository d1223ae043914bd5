"""From start to shutdown: the drain tasks of one queue and its state."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from enum import Enum
from typing import Generic, TypeVar

from batchqueue_async._engine.capacity import Capacities
from batchqueue_async._engine.closing import Closing
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.drain_task import DrainTask, Pace, Work
from batchqueue_async._engine.failure_log import FailureLogs
from batchqueue_async._engine.forking import disown_after_fork
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.keeper import Keeper, Kept
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.rebalancer import Rebalancer
from batchqueue_async._engine.reentrancy import handler_call, outside
from batchqueue_async._engine.stats import RebalancingRound
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.drain_tasks import SharedDrainTasks
from batchqueue_async._policies.errors import BatchQueueError

T = TypeVar("T")

logger = logging.getLogger("batchqueue_async")


class State(Enum):
    """Where a queue is in its life; it only goes on, never back."""

    NEW = "new"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    INHERITED = "inherited by a forked child"


class Lifecycle(Generic[T]):
    """Owns the drain tasks and the state of a queue."""

    def __init__(
        self,
        queue: Kept,
        name: str,
        config: BatchQueueConfig[T],
        layout: Layout[T],
        failures: FailureLogs,
    ) -> None:
        self._queue = queue
        self._name = name
        self._config = config
        self._layout = layout
        self._failures = failures
        self.state = State.NEW
        self.loop: asyncio.AbstractEventLoop | None = None
        self.own_work = OwnWork(queue, layout.ownership)
        self.hooks = Hooks(self.own_work, name, config.idle.shortest)
        self._delivery = Delivery(self.own_work, name, config, failures, self.wake)
        self._running: dict[DrainTask[T], asyncio.Task[None]] = {}
        self.drain_tasks: list[DrainTask[T]] = []
        # The manager's, set before the start.
        self.capacities: Capacities | None = None
        self._rebalancer: Rebalancer[T] | None = None
        self._rebalancing: asyncio.Task[None] | None = None
        self._closing: Closing[T] | None = None
        self._closing_task: asyncio.Task[None] | None = None
        self._left: list[T] = []

    @property
    def is_running(self) -> bool:
        return self.state is State.RUNNING

    @property
    def last_round(self) -> RebalancingRound | None:
        return None if self._rebalancer is None else self._rebalancer.last_round

    @property
    def is_over(self) -> bool:
        return self.state not in (State.NEW, State.RUNNING)

    async def start(self) -> None:
        if self.state is State.RUNNING:
            self.require_own_loop()
            return
        if self.state is not State.NEW:
            msg = f"queue {self._name!r} was shut down and cannot be started again"
            raise BatchQueueError(msg)
        self.loop = asyncio.get_running_loop()
        self.state = State.RUNNING
        self._join_capacity()
        pace = Pace(
            self._config.idle,
            self._config.linger,
            self._config.max_batch,
            self._config.consumer is not None,
        )
        work = Work(self._delivery, self.hooks, self.own_work.capacity or nullcontext())
        for index in range(self._layout.ownership.drain_tasks):
            drain_task = DrainTask(index, self._layout, pace, work)
            self.drain_tasks.append(drain_task)
            self._run(drain_task)
        self._layout.open()
        self._start_rebalancing()
        disown_after_fork(self)
        await Keeper.of(self.loop).keep(self._queue)

    def admits(self) -> bool:
        """Whether items may come in now; False once shutdown has begun.

        Raises:
            BatchQueueError: Not started, or the caller is not on the queue's loop.
        """
        if self.state is State.RUNNING:
            self.require_own_loop()
            return True
        if self.state is State.NEW:
            msg = f"queue {self._name!r} is not started"
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
                f"queue {self._name!r} is its parent process's: a forked child makes "
                "queues of its own"
            )
            raise BatchQueueError(msg)

    def require_own_loop(self) -> None:
        """Refuse callers from other threads and loops.

        Raises:
            BatchQueueError: The running loop is not the queue's.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if self.state not in (State.RUNNING, State.CLOSING):
            return
        if running is not self.loop:
            msg = (
                f"queue {self._name!r} was used from outside of its event loop; "
                "other threads go through a SyncBatchQueue"
            )
            raise BatchQueueError(msg)

    def notice(self, partition: Partition[T]) -> None:
        """Something came to a partition: its owner must not sleep through it."""
        if partition.since is None and self._config.linger and self.loop is not None:
            partition.since = self.loop.time()
        owner = self._layout.owner_of(partition)
        if owner is not None:
            self.drain_tasks[owner].notice(partition)

    def disown(self) -> None:
        """Become unusable and empty: this is a forked child."""
        if self.state is not State.CLOSED:
            self.state = State.INHERITED
        self._layout.disown()
        if self.loop is not None:
            Keeper.of(self.loop).forget(self._queue)

    def wake(self) -> None:
        """Let every drain task look at its share again."""
        for drain_task in self.drain_tasks:
            drain_task.wake()

    def reported_again(self, item_type: type) -> None:
        self._delivery.report_again(item_type)

    async def shutdown(self, timeout: float | None) -> list[T]:
        if self.state is State.NEW:
            self.state = State.CLOSED
            self._layout.close()
        if self.state is State.INHERITED:
            return []
        self.require_own_loop()
        task = self._begin_closing(timeout)
        if handler_call(self._queue) is not None:
            return []
        await asyncio.shield(task)
        left, self._left = self._left, []
        return left

    def hurry(self) -> None:
        if self._closing is not None:
            self._closing.end_within(0)

    async def close(self, timeout: float | None) -> None:
        """Shut down; leftovers are logged and passed on, so none is silent."""
        left = await self.shutdown(timeout)
        if left:
            msg = f"{len(left)} items of {self._name!r} were left at shutdown"
            logger.error(msg)
            await self._delivery.tell(left, BatchQueueError(msg))

    def _begin_closing(self, timeout: float | None) -> asyncio.Task[None]:
        if self._closing_task is None or self._closing is None:
            assert self.loop is not None
            self.state = State.CLOSING
            self._layout.close()
            self._stop_rebalancing()
            self._closing = Closing(self._name)
            self._closing_task = outside(self.loop.create_task, self._close())
            for drain_task, task in list(self._running.items()):
                drain_task.is_closing = True
                if task.done():
                    # Somebody cancelled it: what is left needs it again.
                    self._run(drain_task)
            self.wake()
        self._closing.end_within(timeout)
        return self._closing_task

    async def _close(self) -> None:
        assert self._closing is not None
        assert self.loop is not None
        self._left = await self._closing.run(
            self._running,
            self._layout.partitions,
            self._layout.handlers,
            self.hooks,
            self._failures,
        )
        if self._rebalancing is not None:
            await asyncio.wait({self._rebalancing})
        self.state = State.CLOSED
        if self.own_work.capacity is not None:
            self.own_work.capacity.leave()
        await Keeper.of(self.loop).release(self._queue)

    def _join_capacity(self) -> None:
        shared = self._config.drain_tasks
        if isinstance(shared, SharedDrainTasks):
            # Outside of a manager there is nobody to share with.
            capacity = (self.capacities or Capacities()).of(shared)
            capacity.join()
            self.own_work.capacity = capacity

    def _start_rebalancing(self) -> None:
        rebalancing, count = self._config.rebalancing, len(self.drain_tasks)
        if rebalancing is None or count == 1:
            return
        assert self.loop is not None
        self._rebalancer = Rebalancer(
            self._name, rebalancing, self._layout, self.drain_tasks, self.notice
        )
        self._rebalancing = outside(self.loop.create_task, self._rebalancer.run())
        self._rebalancing.add_done_callback(self._task_ended)

    def _stop_rebalancing(self) -> None:
        if self._rebalancer is not None and self._rebalancing is not None:
            # Before any drain task sees that it is closing, all has an owner again.
            self._rebalancer.stop()
            self._rebalancing.cancel()

    def _run(self, drain_task: DrainTask[T]) -> None:
        assert self.loop is not None
        # Not a part of whatever handler may have started this queue.
        task = outside(
            lambda coroutine, loop: loop.create_task(
                coroutine, name=f"{self._name} drain task {drain_task.index}"
            ),
            drain_task.run(),
            self.loop,
        )
        task.add_done_callback(self._task_ended)
        self._running[drain_task] = task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.critical(
                "%s: %s ended with an error, and its work is left undone",
                self._name,
                task.get_name(),
                exc_info=task.exception(),
            )
