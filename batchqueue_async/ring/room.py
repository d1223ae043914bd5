"""How much room consumers leave for claims.

Invariant: no sequence is claimed before every gating sequence has passed the event that
was in its slot: `claimed - capacity <= lowest gating sequence`; without any, it is what
is published that counts.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from batchqueue_async._wording import shown

from .errors import InvalidArgument
from .published import Published
from .sequence import INITIAL, Sequence, minimum


class Room(Published, ABC):
    """Knows the gating sequences; caches the lowest, and looks again once it is passed.

    Attributes:
        capacity: Events that the ring holds.
        claimed: The highest sequence that belongs to a producer, or did.
        abandoned: Published without an event; forgotten when claimed again.
    """

    __slots__ = (
        "_free_up_to",
        "_gating",
        "_guard",
        "abandoned",
        "capacity",
        "claimed",
    )

    def __init__(self, capacity: int) -> None:
        super().__init__()
        if not _is_power_of_two(capacity):
            msg = f"capacity must be a power of two, got {shown(capacity)}"
            raise InvalidArgument(msg)
        self.capacity = capacity
        self.claimed = INITIAL
        self.abandoned: set[int] = set()
        self._gating: tuple[Sequence, ...] = ()
        self._free_up_to = INITIAL + capacity
        self._guard: AbstractContextManager[Any] = contextlib.nullcontext()

    @abstractmethod
    def look(self) -> None:
        """Grant those who wait what they want, in order, as far as there is room."""

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

    def _has_room(self, n: int) -> bool:
        if self.claimed + n > self._free_up_to:
            lowest = minimum(self._gating, self.published)
            self._free_up_to = lowest + self.capacity
            if self.abandoned:
                self.abandoned = {each for each in self.abandoned if each > lowest}
        # Anew: a `__del__` or a signal handler may have claimed in the middle of that.
        return self.claimed + n <= self._free_up_to

    def _set_gating(self, sequences: tuple[Sequence, ...]) -> None:
        with self._guard:
            self._gating = sequences
            # Whatever was cached: the next claim has to look.
            self._free_up_to = minimum(sequences, self.published) + self.capacity
        self.look()


def _is_power_of_two(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return False
    return value & (value - 1) == 0
