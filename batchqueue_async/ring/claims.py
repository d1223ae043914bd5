"""Who may fill which slot: claims, and the room that consumers leave for them.

Invariants:
* No sequence is claimed before every gating sequence has passed the event that was in
  its slot: `claimed - capacity <= lowest gating sequence`; without any, it is what is
  published that counts.
* `limit` is the highest sequence that may be claimed without looking any further. It
  is out of reach while others wait, when threads claim too, and when the ring is
  closed: the fast path is one comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractContextManager
from typing import Any, Final

from .claim_line import ClaimLine
from .claimants import Claimant
from .errors import InvalidArgument, RingError, RingHalted
from .published import Published
from .sequence import INITIAL, Sequence, minimum
from .watching import Watched

_NONE_FREE: Final = INITIAL - 1


class Claims(Published):
    """Decides about claims; the sequencers do the waiting.

    Attributes:
        claimed: The highest sequence that belongs to a producer, or did.
        limit: How far the next claim may go at once.
        abandoned: Published without an event; forgotten when claimed again.
        consuming: The tasks that call handlers, and how far each has come.
        claims_waited: How many claims have had to wait so far.
        is_closed: Whether no claim is granted any more.
        cause: The error that has halted the ring, if it was one.
        has_told: Whether a producer got to know the cause.
        door: Where other threads come in, if they do.
    """

    __slots__ = (
        "_free_up_to",
        "_gating",
        "_guard",
        "_is_shared",
        "_line",
        "_watched",
        "abandoned",
        "capacity",
        "cause",
        "claimed",
        "claims_waited",
        "consuming",
        "door",
        "has_told",
        "is_closed",
        "limit",
    )

    def __init__(self, capacity: int) -> None:
        super().__init__()
        if not _is_power_of_two(capacity):
            msg = f"capacity must be a power of two, got {capacity!r}"
            raise InvalidArgument(msg)
        self.capacity = capacity
        self.claimed = INITIAL
        self.limit = INITIAL + capacity
        self.abandoned: set[int] = set()
        self.consuming: dict[asyncio.Task[Any], Sequence] = {}
        self.claims_waited = 0
        self.is_closed = False
        self.cause: BaseException | None = None
        self.has_told = False
        self.door: object = None
        self._gating: tuple[Sequence, ...] = ()
        self._free_up_to = self.limit
        self._line = ClaimLine()
        self._watched: Watched | None = None
        self._guard: AbstractContextManager[Any] = contextlib.nullcontext()
        self._is_shared = False

    @property
    def claims_waiting(self) -> int:
        """How many claims wait for room."""
        return len(self._line.waiting)

    @property
    def settled(self) -> int:
        """The highest claimed sequence that nobody can give back any more."""
        return self._line.settled(self.claimed)

    def remaining_capacity(self) -> int:
        """Return how many sequences could be claimed if nobody waited."""
        lowest = minimum(self._gating, self.published)
        return min(self.capacity, self.capacity - (self.claimed - lowest))

    def add_gating_sequences(self, *sequences: Sequence) -> None:
        """Let nothing be overwritten that these have not passed, as they stand now."""
        self._set_gating((*self._gating, *sequences))

    def remove_gating_sequence(self, sequence: Sequence) -> bool:
        """Let producers no longer wait for it; returns whether they did."""
        rest = tuple(each for each in self._gating if each is not sequence)
        if len(rest) == len(self._gating):
            return False
        self._set_gating(rest)
        return True

    def grant(self, n: int) -> int | None:
        """Claim if nobody waits and there is room; returns the highest, or None."""
        self._check_count(n)
        with self._guard:
            self._refuse_if_closed()
            if self._line.waiting or not self._has_room(n):
                return None
            self.claimed += n
            self._set_limit()
            return self.claimed

    def join(self, claimant: Claimant) -> None:
        """Wait in line; afterwards somebody has to `look`, on the loop."""
        with self._guard:
            self._refuse_if_closed()
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
                self._refuse_if_closed()
            return self._line.confirm(claimant)

    def withdraw(self, claimant: Claimant) -> range:
        """A claimant leaves; afterwards somebody has to `look`, on the loop.

        Returns what it was granted, if nobody else can have it: to be abandoned.
        """
        with self._guard:
            if claimant.high is None:
                if claimant in self._line.waiting:
                    self._line.waiting.remove(claimant)
            elif self.is_closed:
                # Shutdown waits for what was claimed when it began.
                self._line.confirm(claimant)
                return range(claimant.high - claimant.n + 1, claimant.high + 1)
            elif self._line.give_back(claimant, self.claimed):
                self.claimed -= claimant.n
            else:
                return range(claimant.high - claimant.n + 1, claimant.high + 1)
            return range(0)

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
        task = asyncio.current_task()
        own = None if task is None else self.consuming.get(task)
        if own is None:
            return
        if own.value < self.claimed + self._line.wanted + n - self.capacity:
            msg = (
                "a handler waits for room in its own ring, which there is only after "
                "it returns: use try_publish_event, or another ring"
            )
            raise RingError(msg)

    def _has_room(self, n: int) -> bool:
        high = self.claimed + n
        if high > self._free_up_to:
            lowest = minimum(self._gating, self.published)
            self._free_up_to = lowest + self.capacity
            if self.abandoned:
                self.abandoned = {each for each in self.abandoned if each > lowest}
        return high <= self._free_up_to

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

    def _set_gating(self, sequences: tuple[Sequence, ...]) -> None:
        with self._guard:
            self._gating = sequences
            # Whatever was cached: the next claim has to look.
            self._free_up_to = minimum(sequences, self.published) + self.capacity
        self.look()

    def _check_count(self, n: int) -> None:
        if not 0 < n <= self.capacity:
            msg = f"n must be 1 to {self.capacity}, got {n!r}"
            raise InvalidArgument(msg)

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            self.has_told = self.cause is not None
            msg = "the ring is closed" if self.cause is None else "the ring was halted"
            raise RingHalted(msg) from self.cause


def _is_power_of_two(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return False
    return value & (value - 1) == 0
