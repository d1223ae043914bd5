"""What was claimed and what is published: as far as consumers may go.

What raises in the middle of a call may be a signal handler, after which the loop runs
on, as in a notebook. So each change is made where no call comes in between, and whoever
has claimed gives up by `give_up`, which may be called at any point.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from .errors import RingError, require_power_of_two
from .sequence import INITIAL, Notifier


class Publications(Notifier):
    """Which sequences are claimed, and which of them consumers may see.

    Attributes:
        claimed: The highest claimed sequence, published or not.
        published: The highest sequence up to which all are published: consumers go no
            further, whatever was published beyond. A plain number, because producers
            touch it for every event.
        abandoned: Published without an event; forgotten some time after all passed.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        require_power_of_two(capacity)
        self.capacity: int = capacity
        self.claimed: int = INITIAL
        self.published: int = INITIAL
        # Sequences that are published beyond a gap.
        self._early: set[int] = set()
        self.abandoned: set[int] = set()
        self._guard: AbstractContextManager[Any] = contextlib.nullcontext()

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

    def is_published(self, sequence: int) -> bool:
        """Whether it was published, if only beyond a gap."""
        return sequence <= self.published or sequence in self._early

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
        self._check(low, high)
        with self._guard:
            # First: consumers must not see what is in their slots.
            self.abandoned.update(range(low, high + 1))
        self.publish(low, high)

    def give_up(self, low: int, high: int) -> None:
        """Abandon what of these claimed sequences was not published yet."""
        for sequence in range(low, high + 1):
            if not self.is_published(sequence):
                self.abandon(sequence, sequence)
