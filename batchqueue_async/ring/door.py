"""How other threads claim and publish: one lock, one wake-up of the loop per burst.

Threads claim under a lock that the loop's claims take too, once there is a door. So a
ring never holds more than its capacity, and claims are first come, first served across
threads. They fill their slots themselves. What is published they leave here, and the
loop publishes it: consumers and their sequences are the loop's alone.

A Ctrl-C may strike a thread after any call. A claimant knows what it has claimed in the
very step in which it claims: so `give_up` finds out what is still to be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque

from batchqueue_async._threads.guard import Guard
from batchqueue_async._threads.watchdog import LoopWatchdog

from .claimants import ThreadClaimant
from .errors import RingError, RingHalted
from .sequencer import Sequencer


class Door:
    """One ring's door for other threads; all its `SyncRing`s share it."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._sequencer = sequencer
        self._filled: deque[tuple[int, int, bool]] = deque()
        self._is_posted = False
        sequencer.share(Guard())

    def check(self) -> None:
        """Refuse callers that could never be served.

        Raises:
            RingError: On the loop's own thread, in a forked child, on a dead loop.
        """
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001
            msg = (
                "a blocking call on the loop's own thread would never end; await the "
                "RingBuffer's method instead"
            )
            raise RingError(msg)
        if os.getpid() != self._process:
            msg = "the ring belongs to the process that this one was forked from"
            raise RingError(msg)
        if self._loop.is_closed() and not self._sequencer.is_closed:
            msg = "the ring's loop is closed"
            raise RingError(msg)

    def claim(self, claimant: ThreadClaimant, timeout: float | None) -> bool:
        """Claim, and wait for it; returns whether it was granted.

        Raises:
            RingHalted: A handler's error has halted the ring.
            RingError: The loop is closed, or has not run for half a second; or a
                handler waits for this thread.
        """
        try:
            return self._sequencer.take(claimant) or self._wait(claimant, timeout)
        except RingHalted:
            if self._sequencer.cause is not None:
                raise
            return False

    def publish(self, low: int, high: int) -> None:
        """Leave filled slots for the loop to publish."""
        self._filled.append((low, high, False))
        if not self._is_posted:
            self._wake_loop()

    def give_up(self, claimant: ThreadClaimant) -> None:
        """Leave nothing behind that others would wait for, whatever was done so far."""
        claimed = self._sequencer.withdraw(claimant)
        if claimed:
            self._filled.append((claimed[0], claimed[-1], True))
        # A loop that is closed has nobody waiting: the caller's error matters.
        with contextlib.suppress(RingError):
            self._wake_loop()

    def _wait(self, claimant: ThreadClaimant, timeout: float | None) -> bool:
        if timeout is None:
            self._sequencer.refuse_deadlock(claimant.n)
        until = None if timeout is None else time.monotonic() + timeout
        watchdog = LoopWatchdog(self._loop, "the ring's loop", RingError)
        claimant.line_up()
        self._sequencer.join(claimant)
        self._wake_loop()
        while claimant.high is None and not self._sequencer.is_closed:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            watchdog.wait(claimant.wait, left)
        return self._leave(claimant)

    def _leave(self, claimant: ThreadClaimant) -> bool:
        """End the wait; returns whether it was granted, if only in the last moment."""
        if self._sequencer.settle(claimant):
            return True
        # Those behind may want less than this one.
        self._wake_loop()
        self._sequencer.refuse_if_closed()
        return False

    def _wake_loop(self) -> None:
        # Without the lock: the loop's wake-up is a system call, where threads change.
        self._is_posted = True
        try:
            self._loop.call_soon_threadsafe(self._on_loop)
        except RuntimeError as error:
            msg = "the ring's loop is closed"
            raise RingError(msg) from error
        except BaseException:
            self._is_posted = False
            raise

    def _on_loop(self) -> None:
        # Before it looks: what is left from now on is posted again.
        self._is_posted = False
        for _ in range(len(self._filled)):
            low, high, is_abandoned = self._filled.popleft()
            if is_abandoned:
                self._abandon(low, high)
            else:
                self._sequencer.publish(low, high)
        if self._sequencer.claims_waiting:
            self._sequencer.look()

    def _abandon(self, low: int, high: int) -> None:
        for sequence in range(low, high + 1):
            # A thread that was interrupted does not know what it had published.
            with contextlib.suppress(RingError):
                self._sequencer.abandon(sequence, sequence)


def door_of(sequencer: Sequencer) -> Door:
    """Return the ring's door; the first call, on the ring's loop, makes it."""
    if sequencer.door is None:
        sequencer.door = Door(sequencer)
    assert isinstance(sequencer.door, Door)
    return sequencer.door
