"""How other threads claim and publish: one lock, one wake-up of the loop per burst.

Threads claim under a lock that the loop's claims take too, once there is a door. So a
ring never holds more than its capacity, and claims are first come, first served across
threads. They fill their slots themselves. What is published they leave here, and the
loop publishes it: consumers and their sequences are the loop's alone.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time

from .claimants import ThreadClaimant
from .errors import RingError, RingHalted
from .sequencer import Sequencer
from .vigil import Vigil


class Door:
    """One ring's door for other threads; all its `SyncRing`s share it."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._sequencer = sequencer
        self._lock = threading.RLock()
        self._filled: list[tuple[int, int, bool]] = []
        self._is_posted = False
        sequencer.share(self._lock)

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

    def claim(self, n: int, timeout: float | None) -> int | None:
        """Claim, and wait for it; returns the highest sequence, None if it is none.

        Raises:
            RingHalted: A handler's error has halted the ring.
            RingError: The loop is closed, or has not run for half a second.
        """
        try:
            with self._lock:
                high = self._sequencer.grant(n)
                if high is not None:
                    return high
                claimant = ThreadClaimant(n)
                self._sequencer.join(claimant)
            return self._wait(claimant, timeout)
        except RingHalted:
            if self._sequencer.cause is not None:
                raise
            return None

    def publish(self, low: int, high: int, *, abandoned: bool = False) -> None:
        """Leave filled slots for the loop to publish."""
        with self._lock:
            self._filled.append((low, high, abandoned))
            if self._is_posted:
                return
            self._is_posted = True
        self._wake_loop()

    def _wait(self, claimant: ThreadClaimant, timeout: float | None) -> int | None:
        until = None if timeout is None else time.monotonic() + timeout
        vigil = Vigil(self._loop)
        try:
            self._post()
            while claimant.high is None and not self._sequencer.is_closed:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    break
                vigil.keep(claimant.wait, left)
        except BaseException:
            # An interrupted thread does not fill what it was granted meanwhile.
            high = self._leave(claimant)
            if high is not None:
                self.publish(high - claimant.n + 1, high, abandoned=True)
            raise
        high = self._leave(claimant)
        if high is None and self._sequencer.cause is not None:
            self._sequencer.grant(claimant.n)  # Says why it is closed.
        return high

    def _leave(self, claimant: ThreadClaimant) -> int | None:
        """End the wait; returns what was granted, if only in the last moment."""
        with self._lock:
            if claimant.high is not None:
                return self._sequencer.confirm(claimant)
            self._sequencer.withdraw(claimant)
        # Those behind may want less than this one.
        self._post()
        return None

    def _post(self) -> None:
        with self._lock:
            if self._is_posted:
                return
            self._is_posted = True
        self._wake_loop()

    def _wake_loop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._on_loop)
        except RuntimeError as error:
            msg = "the ring's loop is closed"
            raise RingError(msg) from error

    def _on_loop(self) -> None:
        with self._lock:
            filled, self._filled = self._filled, []
            self._is_posted = False
        for low, high, abandoned in filled:
            if abandoned:
                self._sequencer.abandon(low, high)
            else:
                self._sequencer.publish(low, high)
        if self._sequencer.claims_waiting:
            self._sequencer.look()


def door_of(sequencer: Sequencer) -> Door:
    """Return the ring's door; the first call, on the ring's loop, makes it."""
    if sequencer.door is None:
        sequencer.door = Door(sequencer)
    assert isinstance(sequencer.door, Door)
    return sequencer.door
