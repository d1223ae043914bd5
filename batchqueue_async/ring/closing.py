"""The end of consumers: drain, stop, and say what was left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from .barrier import SequenceBarrier
from .crew import Crew
from .errors import RingHalted
from .sequence import Sequence, minimum
from .sequencer import Sequencer

logger = logging.getLogger("batchqueue_async.ring")

GRACE: Final = 1.0
"""Seconds that a cancelled handler gets to end."""


class Closing:
    """One shutdown; runs once, whoever asks and however often."""

    def __init__(
        self,
        crew: Crew,
        sequencer: Sequencer,
        stop: Callable[[], None],
        release: Callable[[], None] | None = None,
    ) -> None:
        self._crew = crew
        self._sequencer = sequencer
        self._stop = stop
        self._release = release
        self._is_late = False
        self._is_stopping = False
        self._timers: list[asyncio.TimerHandle] = []
        self._task: asyncio.Task[int] | None = None
        self._drained: SequenceBarrier | None = None
        self._given_up = asyncio.get_running_loop().create_future()

    async def run(self, sequences: tuple[Sequence, ...], timeout: float | None) -> None:
        """Wait until all that is claimed now has been handled, and the tasks ended.

        Of several deadlines the earliest counts. Cancelled, it goes on by itself. A
        handler that calls it does not wait: its own event has to be handled first.

        Raises:
            TimeoutError: The deadline came first; what ran was cancelled.
            RingHalted: A handler's error had halted the ring, and no producer knows.
        """
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._end(sequences), name="ring shutdown")
        if timeout is not None and not self._task.done():
            self._timers.append(loop.call_later(timeout, self._expire))
        if asyncio.current_task() in self._crew.tasks:
            return
        left = await asyncio.shield(self._task)
        if left:
            msg = f"{left} events were not handled before the deadline"
            raise TimeoutError(msg)
        sequencer = self._sequencer
        if sequencer.cause is not None and not sequencer.has_told:
            sequencer.refuse_if_closed()

    async def _end(self, sequences: tuple[Sequence, ...]) -> int:
        sequencer = self._sequencer
        # Of an open ring, what is granted to somebody who has not run may go back.
        target = sequencer.claimed if sequencer.is_closed else sequencer.settled
        if sequences and not sequencer.is_halted:
            await self._drain(sequencer.new_barrier(*sequences), target)
        left = target - minimum(sequences, target) if self._is_late else 0
        self._is_stopping = True
        self._crew.stop()
        self._stop()
        if self._is_late:
            self._crew.cancel()
        await self._tasks_end()
        if self._release is not None:
            self._release()
        for timer in self._timers:
            timer.cancel()
        return left

    async def _drain(self, drained: SequenceBarrier, target: int) -> None:
        self._drained = drained
        while drained.available() < target:
            if self._is_late or drained.is_alerted:
                return
            await drained.sleep(target)

    async def _tasks_end(self) -> None:
        while (tasks := self._crew.tasks) and not self._given_up.done():
            await asyncio.wait(
                {*tasks, self._given_up}, return_when=asyncio.FIRST_COMPLETED
            )
        for task in tasks:
            logger.error("%s could not be stopped", task.get_name())

    def _expire(self) -> None:
        self._is_late = True
        if self._drained is not None:
            self._drained.alert()
        if self._is_stopping:
            # Otherwise it is done next, and once: clean-ups go on undisturbed.
            self._crew.cancel()
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(GRACE, self._give_up))

    def _give_up(self) -> None:
        if not self._given_up.done():
            self._given_up.set_result(None)


async def end_block(end: Awaitable[None], error: BaseException | None) -> None:
    """End an `async with` block by `end`; `error` is what the block has raised."""
    try:
        await end
    except (RingHalted, TimeoutError) as failure:
        if error is None:
            raise
        # The block's own error is what the caller has to see.
        logger.error("shutting down: %s", failure)  # noqa: TRY400
