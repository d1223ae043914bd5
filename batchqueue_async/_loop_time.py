"""How an event loop's time is shared, by sleeping tasks, drain tasks and handlers.

Promise D1: the loop gets its turn at a handler's end, as soon as `SLICE` seconds have
passed since its last one. A turn after each handler call would cost half as much as a
small batch does.

asyncio runs all that is ready in one turn. So drain tasks that come when the slice is
used up stand in line: a callback at the start of each turn resumes them, one after the
other, and only as many as a slice has time for.

How long a handler itself has kept the loop's thread is not what its step took: the step
may have computed or blocked, which is the handler's own doing, or its thread had to
wait, for a processor on a busy machine, or for the interpreter's lock, which other
threads held. Processor time alone cannot tell: blocking uses none either.

- Linux counts for how long a thread was ready to run and had no processor.
- A thread that waits for the interpreter's lock wakes up after each switch interval to
  ask for it: so it waited no longer than its waits times the interval, and other
  threads have used processor time. A thread that blocks wakes up once.
"""

from __future__ import annotations

import asyncio
import math
import operator
import os
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

LONG_AGO: Final = -math.inf
"""Before any time of a loop. One object for all, as each queue keeps some."""

_TURN = "_batchqueue_async_turn"
_USE = "_batchqueue_async_thread_use"
_OFTEN: Final = 0.03
"""Seconds between two samples: a step's use is known no more exactly than that."""
_SELDOM: Final = 1.0
"""The same for `queued`, which is expensive to ask for."""
_SHARE: Final = 0.02
"""A thread that holds the interpreter's lock gets so much of a processor at least."""


# Only one base of a class may have slots, so subclasses list `SLOTS` as their own.
_NO_SLOTS: tuple[str, ...] = ()


class Asleep:
    """What a task awaits until it is woken, in a step that nothing can cut in two.

    A future of asyncio is marked as done first, and schedules its callback second. If
    something is raised in between (a RecursionError, a signal handler's exception), the
    task that awaits it sleeps for ever: no later call wakes it. Here the callback is
    scheduled first, so `wake` either raises or wakes.

    It is future-like, as `asyncio.isfuture` defines that, and has what a task needs of
    one. Each wait makes one, and a subclass of Future would cost three times as much.
    """

    __slots__ = _NO_SLOTS
    SLOTS = (
        "_asyncio_future_blocking",
        "_context",
        "_loop",
        "_outcome",
        "_wakeup",
    )

    # Read by tasks where there is no `get_loop`, which would be one call more.
    _loop: asyncio.AbstractEventLoop
    # Part of asyncio's protocol: set when it is yielded to a task, which resets it.
    _asyncio_future_blocking: bool
    _wakeup: Callable[[object], object] | None
    _context: Context | None
    # A cancelled future, if the wait was cancelled.
    _outcome: asyncio.Future[None] | None
    is_woken: bool
    """Whether it need not be awaited any more, or the call back is on its way."""

    result = bool
    """Called by the task that goes on, which ignores what this returns."""

    def __await__(self) -> Generator[Any, None, None]:
        yield self.fall_asleep()

    def fall_asleep(self) -> Self:
        """Return what the task is to wait for; from now on `wake` calls it back.

        A generator-based coroutine may yield this itself, which spares a frame.
        """
        self._asyncio_future_blocking = True
        return self

    def wake(self) -> None:
        """End the wait. If it raises, nothing has changed: it may be called again."""
        if not self.is_woken:
            self._loop.call_soon(self._resume, context=self._context)
            # A second call back would be harmless, a missing one would not.
            self.is_woken = True

    def run_now(self) -> None:
        """Run the task on now, up to its next wait; for callbacks of the loop only."""
        if (context := self._context) is not None:
            # No call in between, after which a signal handler might raise.
            wakeup, self._wakeup = self._wakeup, None
            # The task may run already: a handler may run the loop inside of itself.
            if wakeup is not None:
                context.run(wakeup, self if self._outcome is None else self._outcome)

    def cancel(self, msg: object | None = None) -> bool:
        """Cancel the wait, as the awaiting task's `cancel` does."""
        if self.is_woken:
            self.call_back_again()
            return False
        outcome: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        outcome.cancel(msg)
        self._loop.call_soon(self._resume, context=self._context)
        self.is_woken, self._outcome = True, outcome
        return True

    def call_back_again(self) -> None:
        """Where it was woken: a signal handler may have raised in place of its call."""
        if self.is_woken:
            self._loop.call_soon(self._resume, context=self._context)

    def add_done_callback(
        self, fn: Callable[[object], object], /, *, context: Context | None = None
    ) -> None:
        """Keep the callback of the task that awaits it; asyncio calls this once."""
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

    It is over for all drain tasks together. It is over while any stand in line, so a
    drain task that comes then goes to the line's end.
    """

    __slots__ = (
        "_began",
        "_clock",
        "_is_asked",
        "_line",
        "_loop",
        "_turns",
        "_users",
        "is_shared",
    )

    is_shared: bool
    """Whether several drain tasks work on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._clock = clock_of(loop)
        self._began = self._clock()
        self._is_asked = False
        # How many a callback has begun.
        self._turns = 0
        self._users, self.is_shared = 0, False
        # The sleeper of a cancelled drain task stays in the line, and is passed over.
        self._line: deque[Sleeper] = deque()

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> LoopTurn:
        """Return the loop's `LoopTurn`; the first call makes it."""
        return kept_by(loop, _TURN, lambda: LoopTurn(loop))

    def join(self) -> None:
        """One more drain task works on the loop."""
        self._users += 1
        self.is_shared = self._users > 1

    def leave(self) -> None:
        """A drain task has ended."""
        self._users -= 1
        self.is_shared = self._users > 1

    def is_over(self) -> bool:
        """Whether the caller has to await `next` before it calls another handler."""
        return self._clock() - self._began >= SLICE

    @coroutine
    def next(self) -> Generator[Any, None, None]:
        """Wait until the caller may call a handler, in a later turn."""
        if not self.is_shared:
            # As in `asyncio.sleep(0)`, without the price of one coroutine more.
            yield
        if not self.is_shared:
            self._began = self._clock()
        else:
            # Also a drain task that was alone before, if others have come meanwhile.
            sleeper = Sleeper(self._loop)
            self._line.append(sleeper)
            self._ask()
            yield sleeper.fall_asleep()

    def note_yield(self) -> None:
        """A drain task yields, or will run again in the loop's next turn."""
        # Of several, none knows which runs first in a turn: a callback begins it.
        if self.is_shared:
            self._ask()

    def note_resume(self) -> bool:
        """A drain task runs again, in another turn; returns whether it began that."""
        if self.is_shared:
            return False
        self._began = self._clock()
        return True

    def _ask(self) -> None:
        if not self._is_asked:
            self._loop.call_soon(self._begin)
            self._is_asked = True

    def ask_again(self) -> None:
        """Move the line on if nothing does: its callback may have been cut short."""
        if self._line or self._is_asked:
            self._loop.call_soon(self._begin_if_lost, self._turns)

    def _begin_if_lost(self, turns: int) -> None:
        # The callback that was asked for before this one would have been here by now.
        if self._turns == turns:
            self._begin()

    def _begin(self) -> None:
        self._is_asked = False
        self._turns += 1
        line = self._line
        if line:
            # First: whatever is raised below, the line moves on in the next turn.
            self._ask()
        self._began = self._clock()
        while line:
            first = line[0]
            first.run_now()
            # A handler that runs the loop inside of itself may have moved the line on.
            if line and line[0] is first:
                del line[0]
            # Only after the first one: each turn moves the line on, on any machine.
            if self.is_over():
                break


def kept_by(loop: asyncio.AbstractEventLoop, name: str, make: Callable[[], K]) -> K:
    """Return the loop's attribute of this name; the first call makes it."""
    known: K | None = getattr(loop, name, None)
    if known is None:
        known = make()
        setattr(loop, name, known)
    return known


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return a clock that tells the loop's time, and goes on within a turn.

    It is cheaper than `loop.time`, which is a Python function around the same clock.
    """
    # uvloop's clock stands still within a turn, but shows the machine's time. A loop in
    # virtual time has its own, and what happens there must not depend on the machine's.
    is_real = abs(loop.time() - time.monotonic()) < 1.0
    return time.monotonic if is_real else loop.time


class Use(NamedTuple):
    """How much processor time a thread, and its process, have used up to now."""

    own: float
    """Seconds of a processor."""
    process: float
    """The same, of all threads."""
    waits: float
    """How often the thread gave up its processor to wait; huge if nobody counts."""


class ThreadUse:
    """What the thread of one loop has used, sampled where steps of handlers begin."""

    __slots__ = ("_queued", "_queued_due", "_sample", "due")

    def __init__(self) -> None:
        # When the next sample is due, by the machine's clock.
        self.due = LONG_AGO
        self._sample = Use(0.0, 0.0, 0.0)
        # For how long it had waited for a processor, and when to ask for that again.
        self._queued, self._queued_due = 0.0, LONG_AGO

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> ThreadUse:
        """Return the loop's `ThreadUse`; the first call makes it."""
        return kept_by(loop, _USE, ThreadUse)

    def look(self, now: float) -> None:
        """Take a sample. It costs some microseconds, so it is taken only when due."""
        self._sample = sample()
        self.due = now + _OFTEN
        # Reading a file takes five times as long: a sixth of what a lone item takes.
        if now >= self._queued_due:
            self._queued, self._queued_due = queued(), now + _SELDOM

    def split(self, seconds: float) -> tuple[float, float]:
        """Return how long a step that ends now has computed, and how long blocked.

        Waits for a processor in the second before it count as the step's own: on a busy
        machine it may seem to have blocked for less time than it has.

        Args:
            seconds: What the step took in all; it began after the last sample.
        """
        own, process, waits = map(operator.sub, sample(), self._sample)
        others, own = process - own, min(seconds, own)
        blocked = seconds - own - (queued() - self._queued)
        if others > _SHARE * blocked > 0:
            blocked -= waits * sys.getswitchinterval()
        return own, max(0.0, blocked)


def _uncounted_waits() -> float:
    # Huge: if other threads compute, any wait may have been for the lock.
    return time.monotonic() * 1e9


if sys.platform == "linux":
    from resource import RUSAGE_THREAD, getrusage

    def sample() -> Use:
        """Return what the calling thread has used."""
        try:
            waits: float = getrusage(RUSAGE_THREAD).ru_nvcsw
        except OSError:
            # A sandbox forbids it, or has it for processes alone.
            waits = _uncounted_waits()
        return Use(time.thread_time(), time.process_time(), waits)

    def queued() -> float:
        """Return for how many seconds this thread was ready, and had no processor."""
        try:
            # Not `open`, which takes twice as long, and which test tools that look
            # for blocking calls on a loop refuse: this file never blocks.
            file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_NONBLOCK)
            try:
                return int(os.read(file, 100).split()[1]) / 1e9
            finally:
                os.close(file)
        except Exception:  # noqa: BLE001 - also what an audit hook raises of its own
            # The kernel was built without it, or nothing can be opened. The handler's
            # call, which is only looked at here, goes on.
            return 0.0

else:

    def sample() -> Use:
        """Return what the calling thread has used, as far as it is known."""
        return Use(time.thread_time(), time.process_time(), _uncounted_waits())

    def queued() -> float:
        """Return the same, which is unknown here."""
        return 0.0
