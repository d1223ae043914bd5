"""The end of a queue: drain, call `on_close`, and account for what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.attempt import GRACE
from batchqueue_async._engine.crew import Crew
from batchqueue_async._engine.doom import doom
from batchqueue_async._engine.handlers import Handlers
from batchqueue_async._engine.hooks import Hooks
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.partition import Partition

T = TypeVar("T")


class Closing(Generic[T]):
    """One queue's shutdown; runs once, whoever asks and however often."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []

    def end_within(self, timeout: float | None) -> None:
        """Set a deadline; of several, the earliest counts."""
        if timeout is not None and not self._deadline.done():
            self._timers.append(self._loop.call_later(timeout, self._expire))

    async def run(self, crew: Crew[T], layout: Layout[T], hooks: Hooks) -> list[T]:
        """Drain until done or until the deadline.

        Returns:
            What was not handled: what was in flight first, then what waited.
        """
        try:
            await self._wait_for(crew.running.values())
            while not self._deadline.done() and crew.revive():
                await self._wait_for(crew.running.values())
            await self._wait_for(hooks.flushing)
            if not self._deadline.done():
                await self._close_handlers(layout.handlers, hooks)
            await self._stop(crew, hooks)
            return _leftovers(crew, layout.partitions)
        finally:
            # No later call may set a timer any more.
            self._expire()
            for timer in self._timers:
                timer.cancel()

    async def _wait_for(self, tasks: Iterable[asyncio.Task[Any]]) -> bool:
        """Wait for the tasks; False if the deadline came first."""
        pending = {task for task in tasks if not task.done()}
        while pending and not self._deadline.done():
            await asyncio.wait(
                {*pending, self._deadline}, return_when=asyncio.FIRST_COMPLETED
            )
            pending = {task for task in pending if not task.done()}
        return not pending

    async def _close_handlers(self, handlers: Handlers, hooks: Hooks) -> None:
        for registration in handlers.to_close():
            task = self._loop.create_task(
                hooks.close(registration), name=f"on_close of {registration.label}"
            )
            if not await self._wait_for({task}):
                await self._cancel([task])
                return

    async def _stop(self, crew: Crew[T], hooks: Hooks) -> None:
        for drain_task in crew.running:
            # A handler may swallow the cancellation: its drain task still stops.
            drain_task.stop()
        tasks = (*crew.running.values(), *hooks.flushing)
        await self._cancel([each for each in tasks if not each.done()])
        hooks.abandon_flushes()

    async def _cancel(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if not tasks:
            return
        for task in tasks:
            doom(task)
        _, survivors = await asyncio.wait(tasks, timeout=GRACE)
        for task in survivors:
            logger.error(
                "%s: a handler does not stop at the deadline; %s is left behind",
                self._name,
                task.get_name(),
            )

    def _expire(self) -> None:
        if not self._deadline.done():
            self._deadline.set_result(None)


def _leftovers(crew: Crew[T], partitions: Sequence[Partition[T]]) -> list[T]:
    left: list[T] = []
    for drain_task in crew.running:
        for batch in drain_task.taken.unsettled():
            left.extend(batch.items)
            batch.settle("returned")
    for partition in partitions:
        left.extend(partition.withdraw())
    return left
