"""Notices, for threads that wait for a loop, that it is dead or does not run.

A loop that does not answer may be stopped, or a handler blocks it, or the machine is so
busy that the loop just had no turn. To tell these apart, a waiting thread takes short
naps: if they end late, too, silence says little. So silence is not counted in seconds
of the clock, but in seconds in which the machine was free to answer.

All threads that wait for one loop share what is known of it. One of them looks often;
the others sleep for long, so that hundreds of blocked threads cost next to nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

from batchqueue_async._loop_time import kept_by
from batchqueue_async._threads.clock import monotonic

PATIENCE = 0.5
"""Seconds of silence that are too many, unless a caller says otherwise."""
FOR_QUEUES = "; wrap a handler that blocks in in_thread, or set a longer patience="
"""What a queue's user may do about a loop that does not answer."""

# Seconds between two looks of the thread that leads, and of the others at most.
_SHORT = 0.1
_LONG = 1.0

# A look that comes so much later than its nap should end shows a busy machine (or that
# the process was suspended), and counts as a fifth of a nap. Beside eight computing
# threads a turn of the interpreter's lock takes that long: a loop needs several.
_LATE = 1.2
_LATE_BY = 0.02
_LATE_SHARE = 0.2
# The thread that leads may be late by so much before another one takes the lead.
_LEASE = 1.5
_LEASE_BY = 0.05

# Other threads that use so much of a processor may have had the interpreter's lock.
_OTHERS = 0.5

# A loop's thread that uses less of a free processor than this is asleep: it waits for
# neither its turn nor the interpreter's lock. If it uses more it is at work, perhaps
# beside others: then the time that it uses counts, a quarter of all time at least.
_ASLEEP = 0.02
_AT_WORK_SHARE = 0.25

_ATTRIBUTE = "_batchqueue_async_heartbeat"


class Heartbeat:
    """When one loop has answered; shared by all threads that wait for it.

    Nothing is locked: each value is written in one step, and looks that two threads
    take at once count the same moment twice at worst.
    """

    def __init__(self) -> None:
        # Seconds in which the loop could have answered, in all; and how many there had
        # been at its last answer.
        self.free = 0.0
        self.answered = 0.0
        self._is_asked = False
        self._is_excused = False
        self._looked = monotonic()
        self._process = time.process_time()
        # Who looks often, after naps of how many seconds, and by when again at latest.
        self._leader: object = None
        self._short = _SHORT
        self._lease = 0.0
        self._thread: int | None = None
        self._clock: int | None = None
        self._used: float | None = None

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Heartbeat:
        """Return the loop's heartbeat; the first call makes it."""
        return kept_by(loop, _ATTRIBUTE, Heartbeat)

    def lead(self, who: object, short: float) -> bool:
        """Whether `who` is to look again after a short nap: one does at a time."""
        now = monotonic()
        if self._leader is not who and now < self._lease:
            return False
        self._leader, self._short = who, short
        self._lease = now + _LEASE * short + _LEASE_BY
        return True

    def ask(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask the loop to answer, unless it has been asked already.

        Raises:
            RuntimeError: The loop is closed.
        """
        # One that was closed before it could answer is asked again, since that raises.
        if not self._is_asked or loop.is_closed():
            self._is_asked = True
            try:
                loop.call_soon_threadsafe(self._answer)
            except BaseException:
                self._is_asked = False
                raise

    @contextmanager
    def excused(self) -> Iterator[None]:
        """Do not count this time: the loop is kept from answering, and will go on."""
        self._is_excused = True
        try:
            yield
        finally:
            self._looked = monotonic()
            self._is_excused = False

    def look(self, *, is_running: bool) -> None:
        """Count the time since the last look, whoever took it.

        Args:
            is_running: Whether the loop runs; else a busy machine is no excuse for it.
        """
        now = monotonic()
        took, self._looked = now - self._looked, now
        before, self._process = self._process, time.process_time()
        if self._is_excused:
            return
        worked = min(took, self._worked())
        # If the time of the loop's thread is not known, it may be that of the process.
        others = 0.0 if self._used is None else self._process - before - worked
        if not is_running:
            share = min(took, self._short)
        elif took > _LATE * self._short + _LATE_BY or others > _OTHERS * took:
            # Looks may follow each other at once, as many threads begin to wait.
            share = max(worked, _LATE_SHARE * min(took, self._short))
        elif worked < _ASLEEP * took:
            share = took
        else:
            share = max(worked, _AT_WORK_SHARE * took)
        self.free += share
        if not self._is_asked:
            self.answered = self.free

    def _worked(self) -> float:
        """Return the processor time of the loop's thread since the last look."""
        if self._clock is None:
            return 0.0
        try:
            used = time.clock_gettime(self._clock)
        except OSError:
            # The loop's thread has ended.
            self._clock = self._used = None
            return 0.0
        before, self._used = self._used, used
        return 0.0 if before is None else used - before

    def _answer(self) -> None:
        self.answered = self.free
        self._is_asked = False
        here = get_ident()
        if here != self._thread and hasattr(time, "pthread_getcpuclockid"):
            # Asked for on the thread itself: of an ended thread it must not be.
            self._thread, self._used = here, None
            self._clock = time.pthread_getcpuclockid(here)


class LoopWatchdog:
    """One thread's wait for something that a loop is to do.

    After `patience` seconds of silence on a free machine the loop counts as dead.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        error: type[Exception],
        patience: float = PATIENCE,
        advice: str = "",
    ) -> None:
        self.loop = loop
        self.name = name
        self._error = error
        self._patience = patience
        self._advice = advice
        self._heartbeat = Heartbeat.of(loop)
        self._begun: float | None = None
        self._nap = 0.0

    def wait(self, wait: Callable[[float], object], seconds: float | None) -> None:
        """Wait for a while, or for `seconds` if that is less.

        Raises:
            Exception: `error`. The loop is closed, or has not run for the patience.
        """
        self._ask()
        wait(self._nap if seconds is None else max(0.0, min(self._nap, seconds)))

    def _ask(self) -> None:
        heartbeat = self._heartbeat
        heartbeat.look(is_running=self.loop.is_running())
        if self._begun is None:
            self._begun = heartbeat.free
        if heartbeat.free - max(self._begun, heartbeat.answered) >= self._patience:
            msg = (
                f"{self.name} has not run for {self._patience} s: it is stopped, "
                f"or something on it blocks{self._advice}"
            )
            raise self._error(msg)
        short = min(_SHORT, self._patience / 5)
        leads = heartbeat.lead(self, short)
        self._nap = short if leads else min(_LONG, max(_SHORT, 2 * self._patience))
        try:
            heartbeat.ask(self.loop)
        except RuntimeError as error:
            msg = f"{self.name} is closed"
            raise self._error(msg) from error
