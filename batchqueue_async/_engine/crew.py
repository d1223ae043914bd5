"""The tasks of one started queue: its drain tasks, and the one that rebalances them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.doom import doom
from batchqueue_async._engine.drain_task import DrainTask, Work
from batchqueue_async._engine.keeper import Keeper, expect_no_end
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import outside
from batchqueue_async._engine.schedule import Pace
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.selectors import by_type

if TYPE_CHECKING:
    from batchqueue_async._engine.rebalancer import Rebalancer

T = TypeVar("T")


class Crew(Generic[T]):
    """Starts the tasks, wakes them, and tells them that the queue closes."""

    __slots__ = (
        "_has_dead",
        "_linger",
        "_loop",
        "_name",
        "_ownership",
        "drain_tasks",
        "rebalancer",
        "rebalancing",
        "running",
    )

    def __init__(
        self, name: str, config: BatchQueueConfig[T], layout: Layout[T], work: Work[T]
    ) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._linger = config.linger
        self._ownership = layout.ownership
        pace = Pace(
            config.idle,
            config.linger,
            config.max_batch,
            is_one_batch=config.consumer is not None,
            is_mixed=config.consumer is not None or config.selector is not by_type,
        )
        self.drain_tasks = [
            DrainTask(index, layout, pace, work)
            for index in range(layout.ownership.drain_tasks)
        ]
        self._has_dead = False
        self.running: dict[DrainTask[T], asyncio.Task[None]] = {}
        for drain_task in self.drain_tasks:
            self._run(drain_task)
        self.rebalancer: Rebalancer[T] | None = None
        self.rebalancing: asyncio.Task[None] | None = None
        if config.rebalancing is not None and len(self.drain_tasks) > 1:
            # Two modules more at the start of a program, for who rebalances.
            from batchqueue_async._engine.rebalancer import (  # noqa: PLC0415
                Rebalancer,
            )

            self.rebalancer = Rebalancer(
                name, config.rebalancing, layout, self.drain_tasks, work.own_work
            )
            self._rebalance(self.rebalancer)

    def notice(self, partition: Partition[T], coming: int = 0) -> None:
        """Something comes to a partition: its owner must not sleep through it.

        Producers on the loop say so before they accept: whatever strikes them, a drain
        task that wakes for nothing is harmless, one that sleeps through an item is not.
        """
        if self._has_dead and _lives_on():
            # Somebody cancelled all tasks of the loop, and it did not end.
            self.revive()
        if self._linger:
            partition.oldest(self._loop.time())
        owner = self._ownership.owner_of(partition.index)
        if owner is not None:
            self.drain_tasks[owner].notice(partition, coming)

    def expect(self, *, is_due: bool) -> None:
        """Items come to many partitions: let no drain task sleep through them."""
        if self._has_dead and _lives_on():
            self.revive()
        for drain_task in self.drain_tasks:
            drain_task.expect(is_due=is_due)

    def wake(self) -> None:
        """Let every drain task look at its share again."""
        for drain_task in self.drain_tasks:
            drain_task.wake()

    def begin_closing(self) -> None:
        """Let the drain tasks end when all is drained."""
        if self.rebalancer is not None and self.rebalancing is not None:
            # Before a drain task sees that it is closing, everything has an owner.
            self.rebalancer.stop()
            doom(self.rebalancing)
        for drain_task in self.drain_tasks:
            drain_task.is_closing = True
        self.revive()
        self.wake()

    def revive(self) -> None:
        """Start the tasks again that somebody cancelled, since the loop lives on."""
        self._has_dead = False
        Keeper.of(self._loop).sing()
        for drain_task, task in list(self.running.items()):
            is_dead = task.done() and drain_task.is_dead
            drain_task.resume()
            if is_dead:
                self._run(drain_task)
        if self.rebalancer is not None and self.rebalancing is not None:
            is_closing = any(each.is_closing for each in self.drain_tasks)
            if self.rebalancing.cancelled() and not is_closing:
                self._rebalance(self.rebalancer)

    def pause(self) -> None:
        """Let the drain tasks end: all tasks of the loop are being cancelled."""
        for drain_task in self.drain_tasks:
            drain_task.pause()

    def stop(self) -> None:
        """Deliver nothing more: a deadline has come, or the loop ends."""
        if self.rebalancer is not None and self.rebalancing is not None:
            self.rebalancer.stop()
            if not self.rebalancing.done():
                doom(self.rebalancing)
        for drain_task in self.drain_tasks:
            # A handler may swallow its cancellation: its drain task still stops.
            drain_task.stop()

    def abandon(self) -> None:
        """The loop never runs again: there is nothing to cancel or to wait for."""
        for drain_task in self.drain_tasks:
            drain_task.stop()
        tasks = list(self.running.values())
        for task in (*tasks, self.rebalancing) if self.rebalancing else tasks:
            expect_no_end(task)

    async def end(self) -> None:
        """Wait for the task that no drain task waits for."""
        if self.rebalancing is not None:
            await asyncio.wait({self.rebalancing})

    def _rebalance(self, rebalancer: Rebalancer[T]) -> None:
        self.rebalancing = self._task(rebalancer.run(), "rebalancing")

    def _run(self, drain_task: DrainTask[T]) -> None:
        name = f"drain task {drain_task.index}"
        self.running[drain_task] = self._task(drain_task.run(), name)
        self.running[drain_task].add_done_callback(self._drain_task_ended)

    def _drain_task_ended(self, ended: asyncio.Task[None]) -> None:
        self._has_dead = any(
            task.done() and drain_task.is_dead
            for drain_task, task in self.running.items()
        )
        is_ending = Keeper.of(self._loop).is_ending
        if self._has_dead and not is_ending and _has_been_cut_short(ended):
            # Else all tasks of the loop are being cancelled. If it lives on, the keeper
            # starts them again, or whoever needs them before.
            self.revive()

    def _task(self, body: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        # Not a part of whatever handler may have started this queue.
        task = outside(self._loop.create_task, body)
        task.set_name(f"{self._name}: {name}")
        task.add_done_callback(_log_error)
        return task


def _lives_on() -> bool:
    # While a loop ends, calls come from callbacks and from tasks that are cancelled.
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def _has_been_cut_short(ended: asyncio.Task[None]) -> bool:
    # With an error its work is left undone: it would come again.
    return ended.cancelled() or ended.exception() is None


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.critical(
            "%s ended with an error, and its work is left undone",
            task.get_name(),
            exc_info=task.exception(),
        )
