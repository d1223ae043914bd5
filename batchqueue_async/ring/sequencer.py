"""What both sequencers share: waiting for room, barriers, the end."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod

from .barrier import SequenceBarrier
from .claimants import LoopClaimant
from .claims import Claims
from .errors import InsufficientCapacity
from .sequence import Sequence
from .wait_strategies import BlockingWait, WaitStrategy


class Sequencer(Claims, ABC):
    """Gives out sequences and knows which are published; see its two kinds.

    Args:
        capacity: Events that the ring holds; a power of two.
        wait: How consumers wait; by default `BlockingWait`.

    Raises:
        InvalidArgument: The capacity is no power of two.
    """

    __slots__ = ("__weakref__", "_barriers", "_wait", "is_halted")

    def __init__(self, capacity: int, wait: WaitStrategy | None = None) -> None:
        super().__init__(capacity)
        self.is_halted = False
        self._wait = BlockingWait() if wait is None else wait
        self._barriers: weakref.WeakSet[SequenceBarrier] = weakref.WeakSet()

    @property
    def wait_strategy(self) -> WaitStrategy:
        """How consumers wait."""
        return self._wait

    async def claim(self, n: int = 1) -> int:
        """Claim the next `n` sequences: the highest of them is returned.

        Waits, first come, first served, while that would overwrite what the slowest
        gating consumer has not passed. Cancelled while it waits, it claims nothing.

        Raises:
            InvalidArgument: `n` is less than 1 or more than the capacity.
            RingHalted: The ring was shut down or halted, perhaps during the wait.
            RingError: A handler waits for room that only itself can make.
        """
        high = self.claimed + n
        if n > 0 and high <= self.limit:
            self.claimed = high
            return high
        granted = self.grant(n)
        return await self.claim_in_line(n) if granted is None else granted

    def try_claim(self, n: int = 1) -> int:
        """Claim the next `n` sequences without waiting; returns the highest.

        Raises:
            InsufficientCapacity: There is no room, or others wait for some.
            InvalidArgument: `n` is less than 1 or more than the capacity.
            RingHalted: The ring was shut down or halted.
        """
        high = self.claimed + n
        if n > 0 and high <= self.limit:
            self.claimed = high
            return high
        high_or_none = self.grant(n)
        if high_or_none is None:
            msg = f"no room for {n} in a ring of {self.capacity}"
            raise InsufficientCapacity(msg)
        return high_or_none

    def new_barrier(self, *dependencies: Sequence) -> SequenceBarrier:
        """Return a barrier for a consumer that comes after these, or after none."""
        barrier = SequenceBarrier(self, self._wait, dependencies)
        self._barriers.add(barrier)
        return barrier

    def abandon(self, low: int, high: int) -> None:
        """Publish claimed sequences without events: consumers skip them."""
        self.publish(low, high)
        with self._guard:
            self.abandoned.update(range(low, high + 1))

    @property
    @abstractmethod
    def cursor(self) -> int:
        """How far producers have come."""

    @property
    def begin_after(self) -> int:
        """The cursor as far as it can't move back: where new consumers start."""
        return min(self.cursor, self.settled)

    @abstractmethod
    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published and its slot not used again."""

    @abstractmethod
    def publish(self, low: int, high: int | None = None) -> None:
        """Make claimed sequences, `low` to `high`, visible to consumers."""

    def halt(self, cause: BaseException | None = None) -> None:
        """Close, and stop all consumers after what they are at."""
        self.close(cause)
        self.is_halted = True
        if self.cause is None:
            self.cause = cause
        for barrier in list(self._barriers):
            barrier.alert()

    async def claim_in_line(self, n: int) -> int:
        """Claim the next `n` sequences when those who wait already have got theirs."""
        self.refuse_deadlock(n)
        claimant = LoopClaimant(n)
        self.join(claimant)
        self.look()
        try:
            await claimant.wait()
        except BaseException:
            # Cancelled; or closed, as a coroutine that nobody runs any more.
            hole = self.withdraw(claimant)
            if hole:
                self.abandon(hole[0], hole[-1])
            self.look()
            raise
        return self.confirm(claimant)
