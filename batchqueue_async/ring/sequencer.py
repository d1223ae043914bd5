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
from typing import TYPE_CHECKING, Any, Final

from batchqueue_async._loop_time import Sleeper
from batchqueue_async._validation import refuse

from .claim_queue import ClaimQueue, WaitingClaim
from .errors import INHERITED, InsufficientCapacity, InvalidArgument, RingError
from .handler_call import HandlerCall, Need, running_call
from .publications import Publications
from .sequence import INITIAL, Notifier, Sequence, minimum, require_sequences
from .sequence_barrier import SequenceBarrier, WaitStrategy, strategy_of

if TYPE_CHECKING:
    from .sync_ring import ThreadIngress

_NONE_FREE: Final = INITIAL - 1


class MultiProducerSequencer(Publications):
    """Gives out sequences, and knows which are published, for any number of producers.

    Producers are tasks or threads; each claims and publishes on its own, in any order:
    consumers go as far as there is no gap. `cursor` is what is claimed, `published`
    what consumers may see.

    Args:
        capacity: Events that the ring holds; a power of two.
        wait: How consumers wait; by default `BlockingWait`.

    Attributes:
        limit: The highest sequence that may be claimed without further checks.
        claims_waited: How many claims have had to wait so far.
        gating: What producers wait for.
        told_of_departures: Whose sleepers look again when a gating sequence is removed.
        ingress: Where other threads leave what they have filled, if they claim too.

    Raises:
        InvalidArgument, TypeError: The capacity is no power of two, or `wait` is none.
    """

    # Again, for type checkers that look at what is assigned in this class.
    claimed: int
    abandoned: set[int]
    is_closed: bool
    is_halted: bool
    has_told: bool
    cause: BaseException | None
    halted_at: str

    def __init__(self, capacity: int, wait: WaitStrategy | None = None) -> None:
        super().__init__(capacity)
        self._free_up_to = INITIAL + capacity
        self.limit: int = self._free_up_to
        self._forgotten = INITIAL
        self.claims_waited: int = 0
        self.wait_strategy: WaitStrategy = strategy_of(wait)
        self.ingress: ThreadIngress | None = None
        self.gating: tuple[Sequence, ...] = ()
        self._barriers: weakref.WeakSet[SequenceBarrier] = weakref.WeakSet()
        self.told_of_departures: list[SequenceBarrier] = []
        self._queue = ClaimQueue()
        # What the first waiting claim waits for.
        self._awaited: Notifier | None = None
        self._is_shared = False

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
        high: int | None = None
        try:
            with self._guard:
                if self._may_claim(n):
                    self.claimed = high = self.claimed + n
                    self._set_limit()
        except BaseException:
            if high is not None:
                self.give_up(high - n + 1, high)
            raise
        if high is None and (self.given_up or self._waiters):
            # In a full ring nobody publishes next, who would tell those who sleep.
            self.make_up()
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
        woken = Sleeper(asyncio.get_running_loop())
        claim.wake, claim.wake_again = woken.wake, woken.call_back_again
        call: HandlerCall | None = None
        try:
            self.enqueue(claim)
            self.recheck()
            call = self.begin_wait(claim)
            await woken
            if call is not None:
                call.end_wait(claim)
            is_granted = self.dequeue(claim)
        except BaseException:
            # The claim was refused, its task cancelled, or its coroutine closed early.
            try:
                self._leave(claim, call)
            except BaseException:
                self._leave(claim, call)
                raise
            raise
        if not is_granted:
            self.refuse_if_closed()
        assert claim.high is not None
        return claim.high

    def _leave(self, claim: WaitingClaim, call: HandlerCall | None) -> None:
        """Leave nothing behind; may be cut off, and called again."""
        if call is not None:
            call.end_wait(claim)
        hole = self.withdraw(claim)
        if hole:
            self.give_up(hole[0], hole[-1])
        self.recheck()

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
                self._queue.forget()
                return range(0)
            self._queue.remove(claim)
            high = claim.high
            return range(0) if high is None else range(high - claim.n + 1, high + 1)

    def recheck(self) -> None:
        """Grant those who wait what they want, in order, as far as there is room."""
        if self.given_up or self._waiters:
            self.make_up()
        with self._guard:
            try:
                self._recheck()
            except BaseException:
                # A signal handler has raised: this goes on before the loop does.
                self._queue.wake_granted()
                self._recheck()
                raise

    def _recheck(self) -> None:
        queue = self._queue
        while queue.waiting:
            claim = queue.first
            if not self._has_room(claim.n):
                break
            # No call in between: what counts as claimed is always some producer's.
            self.claimed = queue.grant(self.claimed)
            claim.wake()
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

    def behind(self, claims: Collection[WaitingClaim]) -> list[Need]:
        """Return what has to come how far before all these claims are granted."""
        with self._guard:
            wanted = self._queue.wanted_up_to(claims)
            wrap_point = self.claimed + wanted - self.capacity
            return [
                (each, wrap_point) for each in self.gating if each.value < wrap_point
            ]

    # --- consumers

    def new_barrier(self, *dependencies: Sequence) -> SequenceBarrier:
        """Return a barrier for a consumer that comes after these, or after none."""
        barrier = SequenceBarrier(self, self.wait_strategy, dependencies)
        self._barriers.add(barrier)
        # Those of before were alerted by the halt.
        barrier.is_alerted = self.is_halted
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
        self._set_gating((*self.gating, *require_sequences(sequences)))

    def remove_gating_sequence(self, sequence: Sequence) -> bool:
        """Let producers no longer wait for it; returns whether they did."""
        rest = tuple(each for each in self.gating if each is not sequence)
        if len(rest) == len(self.gating):
            return False
        self._set_gating(rest)
        for barrier in list(self.told_of_departures):
            barrier.wake()
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
                self.is_closed, self.limit, self.cause = True, _NONE_FREE, cause
            self._queue.dismiss()

    def halt(self, cause: BaseException | None = None) -> None:
        """Close, and stop all consumers after their current batch.

        What is published now is all that they leave: who publishes later is told.
        """
        self.close(cause)
        self._end_publishing(cause)
        for barrier in list(self._barriers):
            barrier.alert()

    def end_after_loop(self, cause: BaseException) -> None:
        """Halt, now that the loop is closed: nobody who waits on it runs again."""
        with self._guard:
            self._waiters = []
            if not self.is_closed:
                self.is_closed, self.limit, self.cause = True, _NONE_FREE, cause
                self.halted_at = f": {cause}"
        self._end_publishing(None)

    def leave_to_parent(self) -> None:
        """Halt in a forked child, where neither the loop nor other threads go on."""
        # Another thread may have held the lock, which nobody releases here.
        self._guard = contextlib.nullcontext()
        if self.ingress is not None:
            self.ingress.leave_to_parent()
        self._waiters, self._queue, self._awaited = [], ClaimQueue(), None
        for barrier in list(self._barriers):
            barrier.leave_to_parent()
        # Nobody is to be told at the end of it: the parent's ring goes on.
        self.is_closed = self.is_halted = self.has_told = True
        self.limit = _NONE_FREE
        self.halted_at = f": {INHERITED}"
        self.cause = RingError(INHERITED)

    def _end_publishing(self, cause: BaseException | None) -> None:
        # Under the guard: what a thread leaves comes either before or after the end.
        with self._guard:
            if self.ingress is not None:
                self.ingress.publish_filled()
            self.is_halted = True
            if self.cause is None:
                self.cause = cause

    def call_back_again(self) -> None:
        """Have all run on whose wake-up an error has cut off."""
        self.settle()
        if self.ingress is not None:
            self.ingress.publish_filled()
        with self._guard:
            self._queue.call_back_again()
        for barrier in list(self._barriers):
            barrier.call_back_again()

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
        wrap_point = self.claimed + self._queue.first.n - self.capacity
        behind = [each for each in self.gating if each.value < wrap_point]
        # Without consumers it is the publications that make room.
        self._awaited = behind[0] if behind else self
        self._awaited.add_waiter(self.recheck)
