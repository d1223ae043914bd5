"""Who has an event loop's time: tasks that sleep, drain tasks, a handler that keeps it.

Promise D1: the loop gets its turn at a handler's end, as soon as `SLICE` seconds have
passed since its last one. To give it one after each handler call would cost a small
batch half of its price.

asyncio runs all that is ready in one turn. So drain tasks that come when the slice is
used up stand in line: what runs them on is the turn itself, one after the other, and
only as many as the next slice has time for.

How long a handler itself has kept the loop's thread is not what its step took: that may
have computed or blocked, which is the handler's own doing, or its thread had to wait,
for a processor, on a busy machine, or for the interpreter's lock, which other threads
had. From processor time alone that can't be told: who blocks uses none either.

- How long a thread could run and had no processor is counted by Linux.
- Who waits for the interpreter's lock wakes up after each switch interval, to ask for
  it: so that took no longer than its waits times the interval, and other threads have
  used processor time. Who blocks wakes up once.
"""

from __future__ import annotations

import asyncio
import math
import operator
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context
from types import coroutine
from typing import Any, Final, NamedTuple, Self, TypeVar

K = TypeVar("K")

SLICE = 50e-6
"""Seconds that drain tasks may keep the loop to themselves, between handler calls."""

_STALE: Final = 0.05
"""Seconds without a turn after which it may be that nobody has asked for one."""

_TURN = "_batchqueue_async_turn"
_USE = "_batchqueue_async_thread_use"
_OFTEN: Final = 0.03
"""Seconds between two samples: a step's use is known as exactly as that."""
_SELDOM: Final = 1.0
"""The same, of what is dear to ask for."""
_SHARE: Final = 0.02
"""Who keeps the interpreter's lock gets so much of a processor, however busy it is."""


# A subclass may have other bases with slots of their own, so it has all of them itself.
_NO_SLOTS: tuple[str, ...] = ()


class Asleep:
    """What a task awaits until it is woken, in a step that nothing can cut in two.

    A future of asyncio is done first and calls back second. What is raised in between
    (a RecursionError, a signal handler's exception) leaves it done and whoever awaits
    it asleep for ever: no later call wakes it. Here the call back is asked for first:
    `wake` either raises or wakes.

    It is future-like, as `asyncio.isfuture` defines that, and has what a task needs of
    one. Each wait makes one, and a future that is a subclass costs three times as much.
    """

    __slots__ = _NO_SLOTS
    SLOTS = (
        "_asyncio_future_blocking",
        "_context",
        "_loop",
        "_outcome",
        "_wakeup",
    )

    # Asked for by tasks instead of `get_loop`, which would be one call more.
    _loop: asyncio.AbstractEventLoop
    # Whether a task is about to be told of it, as the protocol has it.
    _asyncio_future_blocking: bool
    _wakeup: Callable[[object], object] | None
    _context: Context | None
    # A cancelled future, where the wait was cancelled.
    _outcome: asyncio.Future[None] | None
    is_woken: bool
    """Whether it need not be awaited any more, or the call back is on its way."""

    result = bool
    """Returns nothing of interest; asked for by the task that goes on."""

    def __await__(self) -> Generator[Any, None, None]:
        yield self.fall_asleep()

    def fall_asleep(self) -> Self:
        """Return what is awaited; from now on `wake` calls back.

        Or what a generator-based coroutine yields: that spares a frame.
        """
        self._asyncio_future_blocking = True
        return self

    def wake(self) -> None:
        """End the wait. What raises has changed nothing, and may be called again."""
        if not self.is_woken:
            self._loop.call_soon(self._resume, context=self._context)
            # A second call back would be harmless, a missing one would not.
            self.is_woken = True

    def resume(self) -> None:
        """Run the task on now, up to its next wait; for callbacks of the loop only."""
        if (context := self._context) is not None:
            # No call in between, after which a signal handler might raise.
            wakeup, self._wakeup = self._wakeup, None
            # It may run already: a handler may run the loop from inside of itself.
            if wakeup is not None:
                context.run(wakeup, self if self._outcome is None else self._outcome)

    def cancel(self, msg: object | None = None) -> bool:
        """Cancel the wait, as the awaiting task's `cancel` does."""
        if self.is_woken:
            return False
        outcome: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        outcome.cancel(msg)
        self._loop.call_soon(self._resume, context=self._context)
        self.is_woken, self._outcome = True, outcome
        return True

    def add_done_callback(
        self, fn: Callable[[object], object], /, *, context: Context | None = None
    ) -> None:
        """Keep the task that awaits it; called by asyncio, once."""
        self._wakeup, self._context = fn, context

    def _resume(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup(self if self._outcome is None else self._outcome)


class Sleeper(Asleep):
    """One wait of a task."""

    __slots__ = (*Asleep.SLOTS, "is_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = self.is_woken = False
        self._wakeup = self._context = self._outcome = None


class LoopTurn:
    """The current turn of one loop: from one look at sockets and timers to the next.

    It is over for all drain tasks together. While any stand in line it is over, so
    whoever comes goes to the line's end.
    """

    __slots__ = ("_began", "_clock", "_is_asked", "_line", "_loop", "_users")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._clock = clock_of(loop)
        self._began = self._clock()
        self._is_asked = False
        self._users = 0
        # Of a drain task that was cancelled it stays, and is passed over.
        self._line: deque[Sleeper] = deque()

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> LoopTurn:
        """Return the loop's; the first call makes it."""
        return kept_by(loop, _TURN, lambda: LoopTurn(loop))

    def join(self) -> None:
        """One more drain task works on the loop."""
        self._users += 1

    def leave(self) -> None:
        """A drain task has ended."""
        self._users -= 1

    @property
    def is_shared(self) -> bool:
        """Whether several drain tasks work on the loop."""
        return self._users > 1

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
            sleeper = Sleeper(self._loop)
            self._line.append(sleeper)
            self._ask()
            yield sleeper.fall_asleep()

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

    def ask_again(self) -> None:
        """Bring the line on if nothing does: what was to do it may have been struck."""
        if self._line and self._clock() - self._began > _STALE:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_asked = False
        line = self._line
        if line:
            # First: whatever is raised below, the line moves on in the next turn.
            self._ask()
        self._began = self._clock()
        while line:
            first = line[0]
            first.resume()
            # A handler that runs the loop from inside of itself has moved the line on.
            if line and line[0] is first:
                del line[0]
            # After the first one: each turn brings the line on, on any machine.
            if self.is_over():
                break


def kept_by(loop: asyncio.AbstractEventLoop, name: str, make: Callable[[], K]) -> K:
    """Return what hangs on the loop by this name; the first call makes it."""
    known: K | None = getattr(loop, name, None)
    if known is None:
        known = make()
        setattr(loop, name, known)
    return known


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return what tells the loop's time, also within a turn.

    Asked for here, since `loop.time` is a Python function of its own.
    """
    # uvloop's clock stands still within a turn, but is the machine's; a loop in virtual
    # time has another one, and what happens there must not depend on the machine's.
    is_real = abs(loop.time() - time.monotonic()) < 1.0
    return time.monotonic if is_real else loop.time


class Use(NamedTuple):
    """What a thread, and its process, have used up to now."""

    own: float
    """Seconds of a processor."""
    process: float
    """The same, of all threads."""
    waits: float
    """How often it has let go of its processor to wait; inf if nobody counts."""


class ThreadUse:
    """What the thread of one loop has used, sampled where steps of handlers begin."""

    __slots__ = ("_queued", "_queued_due", "_sample", "due")

    def __init__(self) -> None:
        # When the sample is too old, by the machine's clock.
        self.due = -math.inf
        self._sample = Use(0.0, 0.0, 0.0)
        # How long it had been queued, and when that is too old.
        self._queued, self._queued_due = 0.0, -math.inf

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> ThreadUse:
        """Return the loop's; the first call makes it."""
        return kept_by(loop, _USE, ThreadUse)

    def look(self, now: float) -> None:
        """Take a sample. It costs some microseconds, so it is taken when due."""
        self._sample = sample()
        self.due = now + _OFTEN
        # To open a file takes ten times as long: a third of a lone item's way.
        if now >= self._queued_due:
            self._queued, self._queued_due = queued(), now + _SELDOM

    def split(self, seconds: float) -> tuple[float, float]:
        """Return how long a step that ends now has computed, and how long blocked.

        What it was queued in the second before counts as the step's: on a busy machine
        a step may seem to have blocked for less than it has.

        Args:
            seconds: That it took in all; it began after the sample was due.
        """
        own, process, waits = map(operator.sub, sample(), self._sample)
        others, own = process - own, min(seconds, own)
        blocked = seconds - own - (queued() - self._queued)
        if others > _SHARE * blocked > 0:
            blocked -= waits * sys.getswitchinterval()
        return own, max(0.0, blocked)


if sys.platform == "linux":
    from resource import RUSAGE_THREAD, getrusage

    def sample() -> Use:
        """Return what the calling thread has used."""
        waits = getrusage(RUSAGE_THREAD).ru_nvcsw
        return Use(time.thread_time(), time.process_time(), waits)

    def queued() -> float:
        """Return for how many seconds it could run, and had no processor."""
        try:
            with open("/proc/thread-self/schedstat", "rb") as told:  # noqa: PTH123
                return int(told.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            # The kernel was built without it, or nothing can be opened.
            return 0.0

else:

    def sample() -> Use:
        """Return what the calling thread has used, as far as it is known."""
        # So that any wait may have been for the lock, where others compute.
        return Use(time.thread_time(), time.process_time(), time.monotonic() * 1e9)

    def queued() -> float:
        """Return for how many seconds it could run, and had no processor: unknown."""
        return 0.0
