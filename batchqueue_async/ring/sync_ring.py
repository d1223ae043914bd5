"""A ring's verbs for producers on other threads: blocking, with time limits.

Threads claim under a lock that the loop's claims take too, once there is a `SyncRing`.
So a ring never holds more than its capacity, and claims are first come, first served
across threads. They fill their slots themselves, and leave publishing to the loop,
which alone touches consumers and their sequences.

A Ctrl-C may strike a thread after any call. What a thread has claimed is recorded in
its `WaitingClaim` in the same step, so `ThreadIngress.give_up` knows what to give back.

What a thread has left when the ring is halted is published in that step. What it leaves
later is refused: so it is told, or the consumers tell that they leave the event.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, TypeVarTuple

from batchqueue_async._count_in_error import say_count
from batchqueue_async._threads.clock import monotonic
from batchqueue_async._threads.dead_loop_watchdog import LoopWatchdog
from batchqueue_async._threads.event import ThreadEvent
from batchqueue_async._threads.guard import Guard
from batchqueue_async._validation import require_instance

from .claim_queue import WaitingClaim
from .errors import INHERITED, RING, RingError, RingHalted, RingPart, require_timeout
from .event_handler import refuse_unrun
from .ring_buffer import RingBuffer, fill_and_publish, portions
from .sequencer import MultiProducerSequencer

E = TypeVar("E")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class ThreadIngress:
    """Where other threads come into a ring; all its `SyncRing`s share it."""

    def __init__(self, sequencer: MultiProducerSequencer) -> None:
        msg = "a SyncRing must be made on its ring's own loop, and here runs another"
        self._loop = sequencer.own_loop("a SyncRing", msg)
        self._process = os.getpid()
        self._sequencer = sequencer
        self._filled: deque[tuple[int, int, bool]] = deque()
        self._is_woken = False
        self._guard = Guard()
        sequencer.share(self._guard)
        # What threads send is published here, and wakes consumers.
        sequencer.loop = self._loop
        sequencer.ingress = self

    def check(self) -> None:
        """Refuse callers that could never be served."""
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001
            msg = (
                "a blocking call on the loop's own thread would never end; await the "
                "RingBuffer's method instead"
            )
            raise RingError(msg)
        if os.getpid() != self._process:
            raise RingError(INHERITED)
        if self._loop.is_closed() and not self._sequencer.is_closed:
            msg = "the ring's loop is closed"
            raise RingError(msg)

    def claim(self, claim: WaitingClaim, timeout: float | None) -> bool:
        """Claim, and wait for it; returns whether it was granted."""
        try:
            return self._sequencer.claim_for(claim) or self._wait(claim, timeout)
        except RingHalted:
            if self._sequencer.cause is not None:
                raise
            return False

    def publish(self, low: int, high: int) -> bool:
        """Leave filled slots for the loop to publish; returns False if it is too late.

        Raises:
            RingHalted: An error has halted the ring.
        """
        with self._guard:
            if not self._sequencer.is_halted:
                self._filled.append((low, high, False))
            elif self._sequencer.cause is None:
                return False
            else:
                self._sequencer.refuse_if_closed()
        if not self._is_woken:
            self._wake_loop()
        return True

    def give_up(self, claim: WaitingClaim) -> int:
        """Give back or abandon what was claimed and not published: others wait.

        Returns how many of its events are in the ring, or will be.
        """
        unfilled = self._sequencer.withdraw(claim)
        in_ring = self._left(unfilled)
        if unfilled:
            self._filled.append((unfilled[0], unfilled[-1], True))
        # On a closed loop nobody waits, and the caller's own error is to be raised.
        with contextlib.suppress(RingError):
            self._wake_loop()
        return in_ring

    def _left(self, mine: range) -> int:
        """Return how many of its own sequences a thread has left to be published."""
        if not mine:
            return 0
        # In this order: the loop publishes first, and takes out afterwards.
        for low, high, is_abandoned in self._filled.copy():
            if low == mine[0] and not is_abandoned:
                return high - low + 1
        return sum(self._sequencer.is_published(each) for each in mine)

    def _wait(self, claim: WaitingClaim, timeout: float | None) -> bool:
        until = None if timeout is None else monotonic() + timeout
        watchdog = LoopWatchdog(self._loop, "the ring's loop", RingError)
        woken = ThreadEvent()
        claim.wake = woken.set
        self._sequencer.enqueue(claim)
        self._wake_loop()
        # A wait with a time limit ends by itself, so it is not checked.
        call = self._sequencer.begin_wait(claim) if until is None else None
        try:
            while claim.high is None and not self._sequencer.is_closed:
                left = None if until is None else until - monotonic()
                if left is not None and left <= 0:
                    break
                watchdog.wait(woken.wait, left)
        finally:
            if call is not None:
                call.end_wait(claim)
        return self._leave(claim)

    def _leave(self, claim: WaitingClaim) -> bool:
        """End the wait; returns whether it was granted, if only in the last moment."""
        if self._sequencer.dequeue(claim):
            return True
        # Claims behind this one may want less, so that there is room for them.
        self._wake_loop()
        self._sequencer.refuse_if_closed()
        return False

    def _wake_loop(self) -> None:
        # Not under the lock: waking the loop is a system call, and may switch threads.
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._on_loop)
        except BaseException as error:
            # First, without a call: at the recursion limit none succeeds.
            self._is_woken = False
            if isinstance(error, RuntimeError) and self._loop.is_closed():
                msg = "the ring's loop is closed"
                raise RingError(msg) from error
            raise

    def publish_filled(self) -> None:
        """Publish what threads have left so far."""
        # Before it looks: threads that leave something later wake the loop again.
        self._is_woken = False
        for _ in range(len(self._filled)):
            self._publish_next()

    def leave_to_parent(self) -> None:
        """Forget what threads have left, in a forked child."""
        self._filled.clear()
        self._guard.free()

    def _on_loop(self) -> None:
        try:
            self.publish_filled()
            if self._sequencer.claims_waiting:
                self._sequencer.recheck()
        except BaseException:
            # As from a signal handler: no thread might ever come again.
            self._loop.call_soon(self._on_loop)
            raise

    def _publish_next(self) -> None:
        # Taken out last: what is published already is passed over.
        low, high, is_abandoned = self._filled[0]
        if is_abandoned:
            # A thread that was interrupted does not know what it had published.
            self._sequencer.give_up(low, high)
        elif not self._sequencer.is_published(high):
            self._sequencer.publish(low, high)
        self._filled.popleft()


class SyncRing(RingPart, Generic[E]):
    """A ring as other threads see it; one object may serve many threads.

    It is made on the ring's loop and handed to them. None of its methods may be called
    on the loop's own thread: they block it. A wait ends with `RingError` when the loop
    is closed, or has not run for half a second.

    From then on claims on the loop take a lock too, and cost a little more.

    Raises:
        TypeError: It is no ring, but a `Disruptor` for instance.
        RuntimeError: No loop is running here.
        RingError: Another loop than that of the ring's consumers is.
    """

    def __init__(self, ring: RingBuffer[E]) -> None:
        require_instance("ring", ring, RingBuffer, RING)
        self._ring = ring
        self._ingress = ring.sequencer.ingress or ThreadIngress(ring.sequencer)

    @property
    def capacity(self) -> int:
        """How many events the ring holds."""
        return self._ring.capacity

    def publish_event(
        self,
        fill: Callable[[E, int, *Ts], object],
        *args: *Ts,
        timeout: float | None = None,
    ) -> bool:
        """Claim a slot, call `fill(event, sequence, *args)` on this thread, publish.

        While the ring is full it waits, first come, first served with all others.
        Returns whether it was published: False after `timeout` seconds, and once
        shutdown has begun. If `fill` raises, the slot is abandoned.

        Raises:
            RingHalted: A handler's error has halted the ring.
            RingError: On the loop's own thread, in a forked child, or the loop is dead;
                or a handler of this ring that runs started this thread by
                `asyncio.to_thread`, and it would wait without a timeout.
            InvalidArgument, TypeError: The timeout is not valid.
        """
        require_timeout("timeout", timeout)
        self._ingress.check()
        claim = WaitingClaim(1)
        try:
            if not self._ingress.claim(claim, timeout):
                return False
            sequence = claim.high
            assert sequence is not None
            result = fill(self._ring[sequence], sequence, *args)
            if result is not None:
                refuse_unrun("fill", fill, result)
            return self._ingress.publish(sequence, sequence)
        except BaseException as error:
            say_count(error, "published", self._ingress.give_up(claim))
            raise

    def publish_events(
        self,
        fill: Callable[[E, int, A], object],
        items: Iterable[A],
        timeout: float | None = None,
    ) -> int:
        """Call `fill(event, sequence, item)` for each; returns how many were published.

        Those are the first ones: it ends after `timeout` seconds, and when shutdown
        begins. Reads up to a whole ring of items ahead. Not atomic: if `items` or
        `fill` raises, what came before is published, and the attribute `published` of
        whatever is raised says how many. Raises as `publish_event` does.
        """
        require_timeout("timeout", timeout)
        self._ingress.check()
        until = None if timeout is None else monotonic() + timeout
        published = 0
        try:
            for portion in portions(self._ring, items):
                left = None if until is None else max(0.0, until - monotonic())
                if left == 0 and published:
                    break
                claim = WaitingClaim(len(portion))
                try:
                    if not self._ingress.claim(claim, left):
                        break
                    high = claim.high
                    assert high is not None
                    low, publish = high - claim.n + 1, self._ingress.publish
                    if not fill_and_publish(self._ring, low, fill, portion, publish):
                        break
                except BaseException:
                    published += self._ingress.give_up(claim)
                    raise
                published += claim.n
        except BaseException as error:
            say_count(error, "published", published)
            raise
        return published
