"""One drain task's sleep between two cycles, which an arrival may cut short.

There is no timer per item: at most one per sleeping drain task, and none at all
when nothing is expected.
"""

from __future__ import annotations

import asyncio

from batchqueue_async._engine.loop_turn import LoopTurn
from batchqueue_async._engine.sleeper import Sleeper


class Nap:
    """Sleep until a time or until woken, whichever comes first."""

    __slots__ = (
        "_is_called",
        "_loop",
        "_slept_until",
        "_timer",
        "_turn",
        "_until",
        "has_news",
        "sleeper",
        "started",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = LoopTurn.of(loop)
        self.sleeper: Sleeper | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until: float | None = None
        self._slept_until = 0.0
        self._is_called = False
        # An arrival that found no nap, since whoever is to nap looked around.
        self.has_news = False
        self.started = 0.0

    async def sleep(self, until: float | None) -> float:
        """Sleep; without `until` only `wake` or `end_by` end it.

        Returns:
            The time it is for the sleeper: never before a moment that it slept for,
            although the loop may fire a timer a clock tick early.
        """
        self.started = self._loop.time()
        if self._is_called:
            self._is_called = False
            return self.started
        self._until = None
        self._slept_until = 0.0
        self.sleeper = Sleeper(self._loop)
        if until is not None:
            self.end_by(until)
        if self.has_news:
            self.wake()
        try:
            if not self.sleeper.is_called:
                await self.sleeper
        finally:
            self.sleeper = None
            self._cancel_timer()
            self._turn.resumes()
        return max(self._loop.time(), self._slept_until)

    def end_by(self, when: float) -> None:
        """Let the nap end at `when`, or earlier if that was agreed already."""
        if self._until is not None and self._until <= when:
            return
        if when <= self._loop.time():
            self.wake()
            self._cancel_timer()
        else:
            timer = self._loop.call_at(when, self._timer_fired, when)
            self._cancel_timer()
            self._timer = timer
        # Last: what was raised before has agreed on nothing, and the next one asks
        # again.
        self._until = when

    def wake(self) -> None:
        """End the nap now, or else the next one before it begins."""
        if self.sleeper is None:
            self._is_called = True
        else:
            # Before the sleeper gets to run: a turn begins before all that is in it.
            self._turn.yields()
            self.sleeper.wake()

    def _timer_fired(self, when: float) -> None:
        self._timer = None
        self._slept_until = when
        self.wake()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
