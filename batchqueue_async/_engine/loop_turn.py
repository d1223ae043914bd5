"""When an event loop last came round to its other work, for all drain tasks on it.

Promise D1: the loop gets its turn at a handler's end, as soon as `SLICE` seconds have
passed since its last one. To give it one after each handler call would cost a small
batch half of its price.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SLICE = 50e-6
"""Seconds that drain tasks may keep the loop to themselves, between handler calls."""

_ATTRIBUTE = "_batchqueue_async_turn"


class LoopTurn:
    """The current turn of one loop: from one look at sockets and timers to the next.

    It is over for all drain tasks together. Of many that were woken in one turn each
    makes one handler call in it: asyncio runs all that is ready.
    """

    __slots__ = ("_began", "_clock", "_is_asked", "_loop", "_users")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._clock = _clock_of(loop)
        self._began = self._clock()
        self._is_asked = False
        self._users = 0

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> LoopTurn:
        """Return the loop's; the first call makes it."""
        turn = getattr(loop, _ATTRIBUTE, None)
        if turn is None:
            turn = LoopTurn(loop)
            setattr(loop, _ATTRIBUTE, turn)
        assert isinstance(turn, LoopTurn)
        return turn

    def join(self) -> None:
        """One more drain task works on the loop."""
        self._users += 1

    def leave(self) -> None:
        """A drain task has ended."""
        self._users -= 1

    def is_over(self) -> bool:
        """Whether the caller has to yield to the loop now."""
        return self._clock() - self._began >= SLICE

    def yields(self) -> None:
        """A drain task yields, or will run again in the loop's next turn."""
        # With several, the first of them to run does not know that it is the first.
        if self._users > 1 and not self._is_asked:
            self._loop.call_soon(self._begin)
            self._is_asked = True

    def resumes(self) -> None:
        """A drain task runs again, in another turn than before."""
        if self._users <= 1:
            self._began = self._clock()

    def _begin(self) -> None:
        self._is_asked = False
        self._began = self._clock()


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    # uvloop's clock stands still within a turn, but is the machine's; a loop in virtual
    # time has another one, and what happens there must not depend on the machine's.
    is_real = abs(loop.time() - time.monotonic()) < 1.0
    return time.monotonic if is_real else loop.time
