"""The sequencer for any number of producers."""

from __future__ import annotations

from typing import NoReturn

from .errors import RingError
from .sequence import INITIAL
from .sequencer import Sequencer
from .wait_strategy import WaitStrategy


class MultiProducerSequencer(Sequencer):
    """Several producers claim and publish, each in its own time: tasks or threads.

    They may publish in any order, and consumers go as far as there is no gap. `cursor`
    is what is claimed, `published` what consumers may see.

    As in the Disruptor (its `availableBuffer`), each slot keeps the number of the lap
    in which it was last published. So one look says whether a sequence is published,
    and what an earlier lap left in the slot doesn't count.
    """

    __slots__ = ("_early", "_laps", "_mask", "_shift")

    published: int

    def __init__(self, capacity: int, wait: WaitStrategy | None = None) -> None:
        super().__init__(capacity, wait)
        self._mask = capacity - 1
        self._shift = self._mask.bit_length()
        self._laps = [INITIAL] * capacity
        self._early = 0  # How many are published beyond a gap.

    @property
    def cursor(self) -> int:
        """The highest claimed sequence."""
        return self.claimed

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published and its slot not yet published again."""
        lap = self._laps[sequence & self._mask]
        return lap == sequence >> self._shift and sequence >= 0

    def publish(self, low: int, high: int | None = None) -> None:
        """Make `low` to `high` visible to consumers; `high` is `low` by default.

        Beyond a gap they become visible when the gap is closed. What was claimed may be
        published after the ring was closed, too.

        Raises:
            RingError: They are not claimed, or were published before.
        """
        if high is not None:
            self._publish_range(low, high)
        elif low == self.published + 1 and low <= self.claimed:
            self._laps[low & self._mask] = low >> self._shift
            self.published = low
            if self._early:
                self._catch_up()
            if self._waiters:
                self._notify()
        else:
            self._publish_early(low)

    def _publish_early(self, sequence: int) -> None:
        index, lap = sequence & self._mask, sequence >> self._shift
        is_claimed = self.published < sequence <= self.claimed
        if not is_claimed or self._laps[index] == lap:
            self._refuse(sequence, sequence)
        self._laps[index] = lap
        self._early += 1

    def _publish_range(self, low: int, high: int) -> None:
        if not self.published < low <= high <= self.claimed:
            self._refuse(low, high)
        if self._early and any(map(self.is_available, range(low, high + 1))):
            self._refuse(low, high)
        self._mark(low, high)
        if low != self.published + 1:
            self._early += high - low + 1
            return
        self.published = high
        self._catch_up()
        if self._waiters:
            self._notify()

    def _refuse(self, low: int, high: int) -> NoReturn:
        msg = f"{low} to {high} is not claimed, or published already"
        raise RingError(msg)

    def _mark(self, low: int, high: int) -> None:
        first, last, lap = low & self._mask, high & self._mask, low >> self._shift
        if first <= last:
            self._laps[first : last + 1] = [lap] * (last + 1 - first)
        else:
            self._laps[first:] = [lap] * (self.capacity - first)
            self._laps[: last + 1] = [lap + 1] * (last + 1)

    def _catch_up(self) -> None:
        laps, mask, shift = self._laps, self._mask, self._shift
        published, early = self.published, self._early
        while early and laps[(published + 1) & mask] == (published + 1) >> shift:
            published += 1
            early -= 1
        self.published, self._early = published, early
