"""Who may fill which slot: claims, and the line of those that wait.

Invariant: `limit` is the highest sequence that may be claimed without looking any
further. It is out of reach while others wait, when threads claim too, and when the ring
is closed: the fast path is one comparison.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

from batchqueue_async._wording import shown

from .claim_line import ClaimLine
from .claimants import Claimant
from .duty import current_duty
from .errors import InvalidArgument, RingError, RingHalted
from .room import Room
from .sequence import INITIAL
from .watching import Watched

_NONE_FREE: Final = INITIAL - 1


class Claims(Room):
    """Decides about claims; the sequencers do the waiting.

    Attributes:
        limit: How far the next claim may go at once.
        claims_waited: How many claims have had to wait so far.
        is_closed: Whether no claim is granted any more.
        cause: The error that has halted the ring, if it was one.
        has_told: Whether a producer got to know the cause.
        door: Where other threads come in, if they do.
    """

    __slots__ = (
        "_is_shared",
        "_line",
        "_watched",
        "cause",
        "claims_waited",
        "door",
        "has_told",
        "is_closed",
        "limit",
    )

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.limit = self._free_up_to
        self.claims_waited = 0
        self.is_closed = False
        self.cause: BaseException | None = None
        self.has_told = False
        self.door: object = None
        self._line = ClaimLine()
        self._watched: Watched | None = None
        self._is_shared = False

    @property
    def claims_waiting(self) -> int:
        """How many claims wait for room."""
        return len(self._line.waiting)

    @property
    def settled(self) -> int:
        """The highest claimed sequence that nobody can give back any more."""
        return self._line.settled(self.claimed)

    def grant(self, n: int) -> int | None:
        """Claim if nobody waits and there is room; returns the highest, or None."""
        if not 0 < n <= self.capacity:
            msg = f"n must be 1 to {self.capacity}, got {shown(n)}"
            raise InvalidArgument(msg)
        with self._guard:
            if not self._may_claim(n):
                return None
            self.claimed = high = self.claimed + n
            self._set_limit()
            return high

    def take(self, claimant: Claimant) -> bool:
        """Do the same for a thread, which gets to know it in the same step.

        So a Ctrl-C comes before or after both, never in between.
        """
        with self._guard:
            if not self._may_claim(claimant.n):
                return False
            self.claimed = claimant.high = self.claimed + claimant.n
            return True

    def join(self, claimant: Claimant) -> None:
        """Wait in line; afterwards somebody has to `look`, on the loop."""
        with self._guard:
            self.refuse_if_closed()
            self._line.waiting.append(claimant)
            self.claims_waited += 1
            self._set_limit()

    def look(self) -> None:
        """Grant those who wait what they want, in order, as far as there is room."""
        with self._guard:
            line = self._line
            while line.waiting and self._has_room(line.waiting[0].n):
                self.claimed += line.waiting[0].n
                line.grant(self.claimed)
            self._set_limit()
            self._watch_for_room()

    def confirm(self, claimant: Claimant) -> int:
        """A claimant runs again after its wait: return its highest sequence.

        Raises:
            RingHalted: It was granted nothing, because the ring is closed.
        """
        with self._guard:
            if claimant.high is None:
                self.refuse_if_closed()
            return self._line.confirm(claimant)

    def settle(self, claimant: Claimant) -> bool:
        """A thread waits no longer: return whether it was granted what it wanted.

        If not, it is in line no more, and somebody has to `look`, on the loop.
        """
        with self._guard:
            if claimant.high is None:
                self._line.leave(claimant)
                return False
            self._line.confirm(claimant)
            return True

    def withdraw(self, claimant: Claimant) -> range:
        """A claimant leaves; afterwards somebody has to `look`, on the loop.

        Returns what it has claimed, if nobody else can have it: to be abandoned.
        """
        with self._guard:
            if claimant.high is None:
                self._line.leave(claimant)
                return range(0)
            # Shutdown waits for what was claimed when it began.
            if not self.is_closed and self._line.give_back(claimant, self.claimed):
                self.claimed -= claimant.n
                return range(0)
            high = self._line.confirm(claimant)
            return range(high - claimant.n + 1, high + 1)

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
            self._line.dismiss()

    def refuse_deadlock(self, n: int) -> None:
        """Raise if a handler is to wait for what only its own return makes free."""
        duty = current_duty()
        if duty is None or duty.is_over or duty.of is not self:
            return
        wanted = self.claimed + self._line.wanted + n
        if duty.sequence.value < wanted - self.capacity:
            msg = (
                "a handler waits for room in its own ring, which there is only after "
                "it returns: use try_publish_event, or another ring"
            )
            raise RingError(msg)

    def refuse_if_closed(self) -> None:
        """Raise `RingHalted`, with its cause, if no claim is granted any more."""
        if self.is_closed:
            self.has_told = self.cause is not None
            msg = "the ring is closed" if self.cause is None else "the ring was halted"
            raise RingHalted(msg) from self.cause

    def _may_claim(self, n: int) -> bool:
        if self.is_closed:
            self.refuse_if_closed()
        return not self._line.waiting and self._has_room(n)

    def _set_limit(self) -> None:
        is_open = not (self.is_closed or self._is_shared or self._line.waiting)
        self.limit = self._free_up_to if is_open else _NONE_FREE

    def _watch_for_room(self) -> None:
        """While claims wait, be told by a sequence that is behind."""
        if self._watched is not None:
            self._watched.unwatch(self)
            self._watched = None
        if not self._line.waiting:
            return
        wrap_point = self.claimed + self._line.waiting[0].n - self.capacity
        behind = (each for each in self._gating if each.value < wrap_point)
        # Without consumers it is the publications that make room.
        self._watched = next(behind, self)
        self._watched.watch(self)
