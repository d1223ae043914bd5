"""The state of one queue, and its tasks: who may use it when. `Shutdown` ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from batchqueue_async._engine.capacity import Capacities, Permit
from batchqueue_async._engine.crew import Crew
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.drain_task import DrainTask, Work
from batchqueue_async._engine.forking import disown_after_fork
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.keeper import Keeper, Kept
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.shutdown import Shutdown
from batchqueue_async._engine.state import State
from batchqueue_async._engine.stats import RebalancingRound
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.drain_tasks import SharedDrainTasks
from batchqueue_async._policies.errors import BatchQueueError

T = TypeVar("T")


class Lifecycle(Generic[T]):
    """The state of a queue, and its tasks while it has any."""

    __slots__ = (
        "__weakref__",
        "_config",
        "_layout",
        "_queue",
        "_shutdown",
        "crew",
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
        self.hooks = Hooks(
            self.own_work, self.name, config, layout.repeats, on_release=self.wake
        )
        self.delivery = Delivery(
            self.own_work, self.name, config, layout, on_release=self.wake
        )
        self.crew: Crew[T] | None = None
        self._shutdown: Shutdown[T] | None = None
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
        return [] if self.crew is None else self.crew.drain_tasks

    @property
    def last_round(self) -> RebalancingRound | None:
        rebalancer = None if self.crew is None else self.crew.rebalancer
        return None if rebalancer is None else rebalancer.last_round

    @property
    def shutdown(self) -> Shutdown[T]:
        """What ends it; made when asked for, so that an idle queue stays small."""
        if self._shutdown is None:
            self._shutdown = Shutdown(self._queue, self._config, self._layout, self)
        return self._shutdown

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
        self.crew = Crew(self.name, self._config, self._layout, work)
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
        if self.crew is not None:
            self.crew.notice(partition, coming)

    def expect(self, *, is_due: bool) -> None:
        if self.crew is not None:
            self.crew.expect(is_due=is_due)

    def wake(self) -> None:
        if self.crew is not None:
            self.crew.wake()

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

    def pause(self) -> None:
        """Let no handler be called any more: all tasks of the loop are cancelled."""
        if self.crew is not None:
            self.crew.pause()

    def go_on(self) -> None:
        """Start what was cancelled again: the loop lives on."""
        if self.crew is not None and self.state is State.RUNNING:
            self.crew.revive()
        elif self._shutdown is not None:
            self._shutdown.go_on()
