"""From start to shutdown: the state of one queue, and who may use it when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from batchqueue_async._engine.capacity import Capacities, Permit
from batchqueue_async._engine.closing import Closing, leftovers
from batchqueue_async._engine.crew import Crew
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.drain_task import DrainTask, Work
from batchqueue_async._engine.forking import disown_after_fork
from batchqueue_async._engine.handler_waits import EndWait
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.keeper import Keeper, Kept
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.leftovers import Leftovers
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import outside
from batchqueue_async._engine.stats import RebalancingRound
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.deadlines import SHUTDOWN_TIMEOUT, Timeout
from batchqueue_async._policies.drain_tasks import SharedDrainTasks
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._policies.validation import require_timeout
from batchqueue_async._shielding import Shielded

T = TypeVar("T")


class State(Enum):
    """Where a queue is in its life; it only goes on, never back."""

    NEW = "new"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    LOST = "ended with its loop"
    INHERITED = "inherited by a forked child"


class Lifecycle(Generic[T]):
    """The state of a queue, and its tasks while it has any."""

    __slots__ = (
        "__weakref__",
        "_callers",
        "_closing",
        "_closing_task",
        "_config",
        "_crew",
        "_layout",
        "_queue",
        "_tells_leftovers",
        "delivery",
        "hooks",
        "leftovers",
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
        self.hooks = Hooks(
            self.own_work, self.name, config, layout.repeats, on_release=self.wake
        )
        self.delivery = Delivery(
            self.own_work, self.name, config, layout, on_release=self.wake
        )
        self._crew: Crew[T] | None = None
        self._closing: Closing[T] | None = None
        self._closing_task: asyncio.Task[None] | None = None
        # Calls of `shutdown` that wait: one of them gets the list.
        self._callers = 0
        self.leftovers = Leftovers(self.name, config, self.delivery, self.own_work)
        self._tells_leftovers = False
        # A manager's, so that it does not keep what its user has shut down.
        self.on_closed: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether shutdown has begun, or the queue is not this process's."""
        return self.state not in (State.NEW, State.RUNNING)

    @property
    def is_shut_down(self) -> bool:
        """Whether shutdown has begun; not where the loop ended without one."""
        return self.is_over and self.state is not State.LOST

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in (State.CLOSED, State.LOST)

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
        work = Work(self.delivery, self.hooks, self.own_work, self.own_work.permit)
        self._crew = Crew(self.name, self._config, self._layout, work)
        self._layout.open(self._time_here)
        await Keeper.of(self.loop).keep(self._queue)
        self._layout.handlers.attach(self._queue)

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

    def notice(self, partition: Partition[T], coming: int = 0) -> None:
        if self._crew is not None:
            self._crew.notice(partition, coming)

    def expect(self, *, is_due: bool) -> None:
        if self._crew is not None:
            self._crew.expect(is_due=is_due)

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
        require_timeout("timeout", timeout)
        if self.state is State.NEW:
            self.state = State.CLOSED
            self._layout.close()
        self.require_own_loop()
        crew = self._crew
        if crew is None or self.state is State.INHERITED:
            return []
        self._begin_closing(crew).end_within(timeout)
        if self.own_work.is_inside:
            return []
        self._callers += 1
        try:
            await self._ended(crew)
        except BaseException:
            self._callers -= 1
            self._say_unfetched()
            raise
        self._callers -= 1
        left = self.leftovers.take()
        self._tell_closed()
        return left

    def hurry(self, timeout: float) -> None:
        """Bring the deadline of a shutdown that is under way forward."""
        if self._closing is not None:
            self._closing.end_within(timeout)

    async def close(self, timeout: Timeout) -> None:
        """Shut down; leftovers are logged and passed on, so none is silent.

        Also when the caller is cancelled meanwhile: nobody takes the list then.
        """
        if timeout is SHUTDOWN_TIMEOUT:
            timeout = self._config.shutdown_timeout
        require_timeout("timeout", timeout)
        with Shielded():
            self._tells_leftovers = True
            left = await self.shutdown(timeout)
            if left:
                # It had ended before, and nobody had come for the list.
                self._keep_leftovers(left)
                await self._tell_leftovers()
                self._tell_closed()

    def give_back(self, left: list[T]) -> None:
        """Take leftovers again: who got them from `shutdown` has no use for them."""
        self._keep_leftovers(left)
        self._say_unfetched()
        self._tell_closed()

    def pause(self) -> None:
        """Let no handler be called any more: all tasks of the loop are cancelled."""
        if self._crew is not None:
            self._crew.pause()

    def go_on(self) -> None:
        """Start what was cancelled again: the loop lives on."""
        if self._crew is not None and self.state is State.RUNNING:
            self._crew.revive()
        elif self._crew is not None and self.state is State.CLOSING:
            self._begin_closing(self._crew)

    async def end_with_loop(self) -> int | None:
        """Give up what is left: the loop ends now, and can still run.

        Returns:
            How many items were left; None if there was a shutdown after all.
        """
        crew, count = self._crew, None
        while crew is not None and self.state in (State.RUNNING, State.CLOSING):
            task = self._closing_task
            if self._closing is not None and task is not None and not task.done():
                # Somebody shuts it down in these very moments.
                self._closing.end_within(self._config.shutdown_timeout)
                await asyncio.wait({task})
            else:
                count = await self._give_up(crew)
        if not self._callers:
            await self.leftovers.tell(self._loop_ended(count))
        return count

    async def _give_up(self, crew: Crew[T]) -> int:
        if self.state is State.RUNNING:
            self.state = State.LOST
        self._layout.close()
        closing = self._closing = self._closing or Closing(self.name)
        closing.end_now()
        left = await closing.run(crew, self._layout, self.hooks)
        self._layout.failures.add("returned", left)
        self.leftovers.items += left
        await self._end(crew)
        return len(self.leftovers.items)

    def end_after_loop(self) -> int | None:
        """Give up what is left: the loop never runs again."""
        crew, count = self._crew, None
        if crew is not None and self.state is not State.CLOSED:
            is_shut_down = self.state is State.CLOSING
            self.state = State.CLOSED if is_shut_down else State.LOST
            self._layout.close()
            for partition in self._layout.partitions:
                # Who flushes cannot be woken any more.
                partition.accounts.watchers = None
            crew.abandon()
            left = leftovers(crew, self._layout.partitions)
            self._layout.failures.add("returned", left)
            self.leftovers.items += left
            self._layout.repeats.tell(math.inf)
            self.hooks.skip(self._layout.handlers.to_close())
            count = len(self.leftovers.items)
        self.leftovers.tell_after_loop(self._loop_ended(count))
        return count

    def _loop_ended(self, count: int | None) -> str:
        if count is None:
            return (
                f"nobody came for the {len(self.leftovers.items)} items that the "
                f"shutdown of {self.name!r} had left before its loop ended"
            )
        return (
            f"the loop of queue {self.name!r} ended without its shutdown: {count} "
            "items are left"
        )

    def _begin_closing(self, crew: Crew[T]) -> Closing[T]:
        closing = self._closing = self._closing or Closing(self.name)
        task = self._closing_task
        if not self.has_ended and (task is None or task.cancelled()):
            self.state = State.CLOSING
            self._layout.close()
            # First: an eager task may come to its end inside of `create_task`.
            crew.begin_closing()
            body = self._close(crew, closing)
            task = outside(asyncio.get_running_loop().create_task, body)
            task.add_done_callback(self._closing_ended)
            self._closing_task = task
        return closing

    def _closing_ended(self, task: asyncio.Task[None]) -> None:
        is_ending = Keeper.of(task.get_loop()).is_ending
        if task.cancelled() and task is self._closing_task and not is_ending:
            # By a stranger; a shutdown goes on. Else the keeper sees to it.
            self.go_on()

    async def _ended(self, crew: Crew[T]) -> None:
        wait = self.own_work.end(lambda: self.has_ended)
        if wait is None:
            await self._closed(crew, None)
            return
        async with wait:
            wait.begin()
            await self._closed(crew, wait)

    async def _closed(self, crew: Crew[T], wait: EndWait | None) -> None:
        """Wait for the end.

        Args:
            crew: The queue's tasks.
            wait: A handler's, which ends also if it would wait for itself.

        Raises:
            CancelledError: The caller was cancelled, or a stranger has cancelled the
                task that it waits for; the closing goes on by itself.
        """
        while True:
            self._begin_closing(crew)
            task = self._closing_task
            if task is None or task.done():
                break
            # One that is being cancelled already, as all tasks are when a runner ends,
            # is begun again; so it is for who leaves `async with`.
            goes_on = task.cancelling() > 0
            if wait is None:
                await asyncio.wait({task})
            else:
                await wait.until(task)
            if task.cancelled() and not (goes_on or self._tells_leftovers):
                raise asyncio.CancelledError
        if task is not None and not task.cancelled():
            task.result()

    async def _close(self, crew: Crew[T], closing: Closing[T]) -> None:
        left = await closing.run(crew, self._layout, self.hooks)
        self._layout.failures.add("returned", left)
        self.leftovers.items += left
        if self._tells_leftovers:
            await self._tell_leftovers()
        await self._end(crew)
        self._say_unfetched()
        self._tell_closed()

    async def _end(self, crew: Crew[T]) -> None:
        await crew.end()
        self._layout.repeats.tell(math.inf)
        self._layout.handlers.detach()
        if self.state is State.CLOSING:
            self.state = State.CLOSED
        # Once, although a cancelled closing is begun again.
        permit, self.own_work.permit = self.own_work.permit, None
        if permit is not None:
            permit.capacity.leave()
        await Keeper.of(self.running_loop()).release(
            self._queue, is_unfetched=bool(self.leftovers.items)
        )

    def _keep_leftovers(self, left: list[T]) -> None:
        self.leftovers.items += left
        Keeper.of(self.running_loop()).hold(self._queue)

    async def _tell_leftovers(self) -> None:
        count = len(self.leftovers.items)
        await self.leftovers.tell(
            f"{count} items of {self.name!r} were left at shutdown"
        )

    def _say_unfetched(self) -> None:
        """Nobody waits for the list of what was left: it must not be silent."""
        if self.leftovers.items and not self._callers and self.has_ended:
            logger.error(
                "%d items of %r were left at shutdown, and nobody waits for them; the "
                "next call of shutdown returns them",
                len(self.leftovers.items),
                self.name,
            )

    def _tell_closed(self) -> None:
        """Let go of the queue where all is done: it is closed, and nothing is left."""
        if not self.has_ended:
            return
        if not self.leftovers.items:
            Keeper.of(self.running_loop()).forget(self._queue)
        if self.on_closed is not None:
            self.on_closed()
