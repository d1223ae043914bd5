"""A ring's verbs for producers on other threads: blocking, with time limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, TypeVarTuple

from .claimants import ThreadClaimant
from .door import door_of
from .portions import portions
from .ring_buffer import RingBuffer
from .timeouts import require_timeout

E = TypeVar("E")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class SyncRing(Generic[E]):
    """A ring as other threads see it; one object may serve many threads.

    It is made on the ring's loop and handed to them. None of its methods may be called
    on the loop's own thread: they block it. A wait ends with `RingError` when the loop
    is closed, or has not run for half a second.

    From then on claims on the loop take a lock too, and cost a little more.

    Raises:
        RuntimeError: No loop is running here.
    """

    def __init__(self, ring: RingBuffer[E]) -> None:
        self._ring = ring
        self._door = door_of(ring.sequencer)

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
            InvalidArgument, TypeError: The timeout is none.
        """
        require_timeout("timeout", timeout)
        self._door.check()
        claimant = ThreadClaimant(1)
        try:
            if not self._door.claim(claimant, timeout):
                return False
            sequence = claimant.high
            assert sequence is not None
            fill(self._ring[sequence], sequence, *args)
            self._door.publish(sequence, sequence)
        except BaseException:
            self._door.give_up(claimant)
            raise
        return True

    def publish_events(
        self,
        fill: Callable[[E, int, A], object],
        items: Iterable[A],
        timeout: float | None = None,
    ) -> int:
        """Call `fill(event, sequence, item)` for each; returns how many were published.

        Those are the first ones: it ends after `timeout` seconds, and when shutdown
        begins. Reads up to a whole ring of items ahead. Not atomic: if `items` or
        `fill` raises, what came before is published. Raises as `publish_event` does.
        """
        require_timeout("timeout", timeout)
        self._door.check()
        until = None if timeout is None else time.monotonic() + timeout
        published = 0
        for portion in portions(items, self.capacity):
            done = 0
            while done < len(portion):
                left = None if until is None else max(0.0, until - time.monotonic())
                if left == 0 and published:
                    return published
                n = min(len(portion) - done, max(1, self._ring.remaining_capacity()))
                if not self._publish(fill, portion[done : done + n], left):
                    return published
                done += n
                published += n
        return published

    def _publish(
        self, fill: Callable[[E, int, A], object], items: list[A], timeout: float | None
    ) -> bool:
        claimant = ThreadClaimant(len(items))
        try:
            if not self._door.claim(claimant, timeout):
                return False
            high = claimant.high
            assert high is not None
            self._fill(high - claimant.n + 1, high, fill, items)
        except BaseException:
            self._door.give_up(claimant)
            raise
        return True

    def _fill(
        self, low: int, high: int, fill: Callable[[E, int, A], object], items: list[A]
    ) -> None:
        sequence = low
        try:
            for event, item in zip(self._ring.events(low, high), items, strict=True):
                fill(event, sequence, item)
                sequence += 1
        finally:
            if sequence > low:
                self._door.publish(low, sequence - 1)
