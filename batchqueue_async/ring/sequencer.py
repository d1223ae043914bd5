"""Who may fill which slot: claims, gating sequences, barriers, the end.

Invariants:
* No sequence is claimed before every gating sequence has passed the event that was in
  its slot: `claimed - capacity <= lowest gating sequence`, or `published` without any.
* `limit` is the highest sequence that may be claimed without further checks. No claim
  is within it while others wait, when threads claim too, and when the ring is closed:
  so the fast path is one comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Collection
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from batchqueue_async._validation import refuse

from .claim_queue import ClaimQueue, WaitingClaim
from .errors import (
    InsufficientCapacity,
    InvalidArgument,
    RingError,
    RingHalted,
    require_power_of_two,
)
from .handler_call import HandlerCall, running_call
from .sequence import INITIAL, Notifier, Sequence, minimum
from .sequence_barrier import BlockingWait, SequenceBarrier, WaitStrategy

_NONE_FREE: Final = INITIAL - 1


class MultiProducerSequencer(Notifier):
    """Gives out sequences, and knows which are published, for any number of producers.

    Producers are tasks or threads; each claims and publishes on its own, in any order:
    consumers go as far as there is no gap. `cursor` is what is claimed, `published`
    what consumers may see.

    Args:
        capacity: Events that the ring holds; a power of two.
        wait: How consumers wait; by default `BlockingWait`.

    Attributes:
        claimed: The highest claimed sequence, published or not.
        published: The highest sequence up to which all are published: consumers go no
            further, whatever was published beyond. A plain number, because producers
            touch it for every event.
        limit: The highest sequence that may be claimed without further checks.
        abandoned: Published without an event; forgotten some time after all passed.
        claims_waited: How many claims have had to wait so far.
        gating: What producers wait for.
        is_halted: Whether consumers are to stop after their current batch.
        cause: The error that has halted the ring, if it was one; `has_told` says
            whether it was raised to a caller, `halted_at` by which event and handler.
        ingress: The `ThreadIngress` of other threads, if they claim too.

    Raises:
        InvalidArgument: The capacity is no power of two.
    """

    def __init__(self, capacity: int, wait: WaitStrategy | None = None) -> None:
        super().__init__()
        require_power_of_two(capacity)
        self.capacity: int = capacity
        self.claimed: int = INITIAL
        self.published: int = INITIAL
        # Sequences that are published beyond a gap.
        self._early: set[int] = set()
        self._free_up_to = INITIAL + capacity
        self.limit: int = self._free_up_to
        self.abandoned: set[int] = set()
        self._forgotten = INITIAL
        self.claims_waited: int = 0
        self.wait_strategy: WaitStrategy = BlockingWait() if wait is None else wait
        self.is_closed: bool = False
        self.is_halted: bool = False
        self.cause: BaseException | None = None
        self.halted_at: str = ""
        self.has_told: bool = False
        self.ingress: object = None
        self.gating: tuple[Sequence, ...] = ()
        self._barriers: weakref.WeakSet[SequenceBarrier] = weakref.WeakSet()
        self._queue = ClaimQueue()
        # What the first waiting claim waits for.
        self._awaited: Notifier | None = None
        self._guard: AbstractContextManager[Any] = contextlib.nullcontext()
        self._is_shared = False

    # --- publication

    @property
    def cursor(self) -> int:
        """The highest claimed sequence."""
        return self.claimed

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published and its slot not yet published again."""
        oldest = max(0, self.published - self.capacity + 1)
        return sequence in self._early or (
            oldest <= sequence <= self.published
            and sequence + self.capacity not in self._early
        )

    def publish(self, low: int, high: int | None = None) -> None:
        """Make `low` to `high` visible to consumers; `high` is `low` by default.

        Beyond a gap they become visible when the gap is closed. What was claimed may be
        published after the ring was closed, too.

        Raises:
            RingError: They are not claimed, or were published before.
        """
        if high is None:
            high = low
        early = self._early
        if early or low != self.published + 1 or not low <= high <= self.claimed:
            self._check(low, high)
        is_early = low > self.published + 1
        if is_early:
            early.update((low,) if low == high else range(low, high + 1))
        else:
            self.published = high
        # In both cases: a signal handler may have published in between.
        while early and self.published + 1 in early:
            self.published += 1
            early.discard(self.published)
        if self._waiters and not (is_early and high > self.published):
            self._notify()

    def _check(self, low: int, high: int) -> None:
        early = self._early
        is_known = (
            low in early if low == high else not early.isdisjoint(range(low, high + 1))
        )
        if is_known or not self.published < low <= high <= self.claimed:
            msg = f"{low} to {high} is not claimed, or published already"
            raise RingError(msg)

    def abandon(self, low: int, high: int) -> None:
        """Publish claimed sequences without events: consumers skip them."""
        self.publish(low, high)
        with self._guard:
            self.abandoned.update(range(low, high + 1))

    # --- claims

    async def claim(self, n: int = 1) -> int:
        """Claim the next `n` sequences, as `RingBuffer.claim` does."""
        high = self.claimed + n
        if n > 0 and high <= self.limit:
            self.claimed = high
            return high
        high_or_none = self.claim_now(n)
        return await self.claim_in_turn(n) if high_or_none is None else high_or_none

    def try_claim(self, n: int = 1) -> int:
        """Claim without waiting, as `RingBuffer.try_claim` does."""
        high = self.claimed + n
        if n > 0 and high <= self.limit:
            self.claimed = high
            return high
        high_or_none = self.claim_now(n)
        if high_or_none is None:
            msg = f"no room for {n} in a ring of {self.capacity}"
            raise InsufficientCapacity(msg)
        return high_or_none

    def claim_now(self, n: int) -> int | None:
        """Claim if nobody waits and there is room; returns the highest, or None."""
        if not 0 < n <= self.capacity:
            refuse("n", f"1 to {self.capacity}", n, InvalidArgument)
        with self._guard:
            if not self._may_claim(n):
                return None
            self.claimed = high = self.claimed + n
            self._set_limit()
            return high

    def claim_for(self, claim: WaitingClaim) -> bool:
        """Claim like `claim_now`, for a thread; sets `claim.high` in the same step.

        So a Ctrl-C comes before or after both, never in between.
        """
        with self._guard:
            if not self._may_claim(claim.n):
                return False
            self.claimed = claim.high = self.claimed + claim.n
            return True

    async def claim_in_turn(self, n: int) -> int:
        """Claim the next `n` sequences when those who wait already have got theirs."""
        claim = WaitingClaim(n)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        claim.wake = partial(_wake, woken)
        call: HandlerCall | None = None
        try:
            self.enqueue(claim)
            self.recheck()
            call = self.begin_wait(claim)
            await woken
        except BaseException:
            # The claim was refused, its task cancelled, or its coroutine closed early.
            hole = self.withdraw(claim)
            if hole:
                self.abandon(hole[0], hole[-1])
            self.recheck()
            raise
        finally:
            if call is not None:
                call.end_wait(claim)
        if not self.dequeue(claim):
            self.refuse_if_closed()
        assert claim.high is not None
        return claim.high

    # --- claims that wait; after `enqueue`, and after a claim leaves without its grant,
    # --- the caller has to see to a `recheck` on the loop

    @property
    def claims_waiting(self) -> int:
        """How many claims wait for room."""
        return len(self._queue.waiting)

    def enqueue(self, claim: WaitingClaim) -> None:
        """Let the claim wait in line."""
        with self._guard:
            self.refuse_if_closed()
            self._queue.append(claim)
            self.claims_waited += 1
            self._set_limit()

    def dequeue(self, claim: WaitingClaim) -> bool:
        """Take the claim out of the line; returns whether it was granted."""
        with self._guard:
            self._queue.remove(claim)
            return claim.high is not None

    def withdraw(self, claim: WaitingClaim) -> range:
        """Take out a claim whose producer gives up.

        Returns its sequences if nobody else can have them: the caller abandons them.
        """
        with self._guard:
            # Once closed nothing goes back: shutdown waits for all that was claimed.
            if not self.is_closed and self._queue.give_back(claim, self.claimed):
                self.claimed -= claim.n
                return range(0)
            self._queue.remove(claim)
            high = claim.high
            return range(0) if high is None else range(high - claim.n + 1, high + 1)

    def recheck(self) -> None:
        """Grant those who wait what they want, in order, as far as there is room."""
        with self._guard:
            queue = self._queue
            while queue.waiting and self._has_room(queue.wanted_next):
                self.claimed += queue.wanted_next
                queue.grant(self.claimed)
            self._set_limit()
            self._wait_for_room()

    def begin_wait(self, claim: WaitingClaim) -> HandlerCall | None:
        """Let others see that a handler's call waits, if one does; returns that call.

        Raises:
            RingError: Only that handler's own return could end the wait.
        """
        call = running_call()
        if call is not None:
            call.begin_wait(claim, self)
        return call

    def behind(self, claims: Collection[WaitingClaim]) -> list[Sequence]:
        """Return the sequences that must move before all these claims are granted."""
        with self._guard:
            wanted = self._queue.wanted_up_to(claims)
            wrap_point = self.claimed + wanted - self.capacity
            return [each for each in self.gating if each.value < wrap_point]

    # --- consumers

    def new_barrier(self, *dependencies: Sequence) -> SequenceBarrier:
        """Return a barrier for a consumer that comes after these, or after none."""
        barrier = SequenceBarrier(self, self.wait_strategy, dependencies)
        self._barriers.add(barrier)
        return barrier

    @property
    def settled(self) -> int:
        """The highest claimed sequence that nobody can give back any more."""
        # Once closed nothing goes back: threads with a grant will still fill it.
        return self.claimed if self.is_closed else self._queue.settled(self.claimed)

    @property
    def begin_after(self) -> int:
        """Where new consumers start: the cursor, without grants that may go back."""
        return min(self.cursor, self.settled)

    def remaining_capacity(self) -> int:
        """Return how many sequences could be claimed if nobody waited."""
        lowest = minimum(self.gating, self.published)
        return min(self.capacity, self.capacity - (self.claimed - lowest))

    def add_gating_sequences(self, *sequences: Sequence) -> None:
        """Let producers wait for these, from their present values on."""
        self._set_gating((*self.gating, *sequences))

    def remove_gating_sequence(self, sequence: Sequence) -> bool:
        """Let producers no longer wait for it; returns whether they did."""
        rest = tuple(each for each in self.gating if each is not sequence)
        if len(rest) == len(self.gating):
            return False
        self._set_gating(rest)
        return True

    # --- threads, and the end

    def share(self, guard: AbstractContextManager[Any]) -> None:
        """From now on other threads claim too, under this guard."""
        self._guard = guard
        self._is_shared = True
        self._set_limit()

    def close(self, cause: BaseException | None = None) -> None:
        """Take no more claims; those who wait are told so."""
        with self._guard:
            if not self.is_closed:
                self.is_closed = True
                self.cause = cause
            self._set_limit()
            self._queue.dismiss()

    def halt(self, cause: BaseException | None = None) -> None:
        """Close, and stop all consumers after their current batch."""
        self.close(cause)
        self.is_halted = True
        if self.cause is None:
            self.cause = cause
        for barrier in list(self._barriers):
            barrier.alert()

    def refuse_if_closed(self) -> None:
        """Raise `RingHalted`, with its cause, if no claim is granted any more."""
        if self.is_closed:
            self.has_told = self.cause is not None
            halted = f"the ring was halted{self.halted_at}"
            msg = "the ring is closed" if self.cause is None else halted
            raise RingHalted(msg) from self.cause

    def _may_claim(self, n: int) -> bool:
        if self.is_closed:
            self.refuse_if_closed()
        return not self._queue.waiting and self._has_room(n)

    def _has_room(self, n: int) -> bool:
        if self.claimed + n > self._free_up_to:
            lowest = minimum(self.gating, self.published)
            self._free_up_to = lowest + self.capacity
            # Not each time: with a slow consumer this is reached for each event.
            if self.abandoned and lowest - self._forgotten >= self.capacity >> 3:
                self.abandoned = {each for each in self.abandoned if each > lowest}
                self._forgotten = lowest
        # Compared anew: a `__del__` or a signal handler may have claimed in between.
        return self.claimed + n <= self._free_up_to

    def _set_gating(self, sequences: tuple[Sequence, ...]) -> None:
        with self._guard:
            self.gating = sequences
            # What was cached holds for the old gating sequences only.
            self._free_up_to = minimum(sequences, self.published) + self.capacity
        self.recheck()

    def _set_limit(self) -> None:
        is_open = not (self.is_closed or self._is_shared or self._queue.waiting)
        self.limit = self._free_up_to if is_open else _NONE_FREE

    def _wait_for_room(self) -> None:
        """While claims wait, be notified by a sequence that is behind."""
        if self._awaited is not None:
            self._awaited.remove_waiter(self.recheck)
            self._awaited = None
        if not self._queue.waiting:
            return
        wrap_point = self.claimed + self._queue.wanted_next - self.capacity
        behind = (each for each in self.gating if each.value < wrap_point)
        # Without consumers it is the publications that make room.
        self._awaited = next(behind, self)
        self._awaited.add_waiter(self.recheck)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
