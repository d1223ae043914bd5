"""When an event loop last came round to its other work, for all drain tasks on it.

Promise D1: the loop gets its turn at a handler's end, as soon as `SLICE` seconds have
passed since its last one. To give it one after each handler call would cost a small
batch half of its price.

asyncio runs all that is ready in one turn. So drain tasks that come when the slice is
used up stand in line: what runs them on is the turn itself, one after the other, and
only as many as the next slice has time for.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from types import coroutine
from typing import Any

from batchqueue_async._engine.sleeper import Sleeper

SLICE = 50e-6
"""Seconds that drain tasks may keep the loop to themselves, between handler calls."""

_ATTRIBUTE = "_batchqueue_async_turn"


class LoopTurn:
    """The current turn of one loop: from one look at sockets and timers to the next.

    It is over for all drain tasks together. While any stand in line it is over, so
    whoever comes goes to the line's end.
    """

    __slots__ = ("_began", "_clock", "_is_asked", "_line", "_loop", "_users")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._clock = _clock_of(loop)
        self._began = self._clock()
        self._is_asked = False
        self._users = 0
        # Of a drain task that was cancelled the place stays, and is passed over.
        self._line: deque[Sleeper] = deque()

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
        """Whether the caller has to await `next` before it calls another handler."""
        return self._clock() - self._began >= SLICE

    @coroutine
    def next(self) -> Generator[Any, None, None]:
        """Wait until the caller may call a handler, in a later turn."""
        if self._users <= 1:
            # As in `asyncio.sleep(0)`, without the price of one coroutine more.
            yield
        if self._users <= 1:
            self._began = self._clock()
        else:
            # Also a lone one, if others have come meanwhile.
            place = Sleeper(self._loop)
            self._line.append(place)
            self._ask()
            yield from place

    def yields(self) -> None:
        """A drain task yields, or will run again in the loop's next turn."""
        # With several, the first of them to run does not know that it is the first.
        if self._users > 1:
            self._ask()

    def resumes(self) -> None:
        """A drain task runs again, in another turn than before."""
        if self._users <= 1:
            self._began = self._clock()

    def _ask(self) -> None:
        if not self._is_asked:
            self._loop.call_soon(self._begin)
            self._is_asked = True

    def _begin(self) -> None:
        self._is_asked = False
        line = self._line
        if line:
            # First: whatever is raised below, the line moves on in the next turn.
            self._ask()
        self._began = self._clock()
        while line:
            line[0].resume()
            del line[0]
            # After the first one: each turn brings the line on, on any machine.
            if self.is_over():
                break


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    # uvloop's clock stands still within a turn, but is the machine's; a loop in virtual
    # time has another one, and what happens there must not depend on the machine's.
    is_real = abs(loop.time() - time.monotonic()) < 1.0
    return time.monotonic if is_real else loop.time
