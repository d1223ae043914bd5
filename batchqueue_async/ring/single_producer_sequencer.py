"""The sequencer for one producer at a time."""

from __future__ import annotations

from .errors import RingError
from .sequencer import Sequencer
from .wait_strategy import WaitStrategy


class SingleProducerSequencer(Sequencer):
    """One producer claims and publishes, in the order of its claims.

    So all up to `cursor`, the highest published sequence, is published, and no slot has
    to note anything. Nobody checks that there is one producer only. Should a later
    claim be published first, by a second task, consumers see it when those before it
    have come.
    """

    __slots__ = ("_early",)

    def __init__(self, capacity: int, wait: WaitStrategy | None = None) -> None:
        super().__init__(capacity, wait)
        self._early: set[int] = set()

    @property
    def cursor(self) -> int:
        """The highest published sequence."""
        return self.published

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published and its slot not yet claimed again."""
        oldest = max(0, self.claimed - self.capacity + 1)
        return oldest <= sequence <= self.published

    def publish(self, low: int, high: int | None = None) -> None:
        """Make `low` to `high` visible to consumers; `high` is `low` by default.

        What was claimed may be published after the ring was closed, too.

        Raises:
            RingError: They are not claimed, or were published before.
        """
        if high is None:
            high = low
        if low != self.published + 1 or self._early or not low <= high <= self.claimed:
            self._check(low, high)
            self._early.update(range(low, high + 1))
            high = self._end_of_run()
        if high > self.published:
            self.published = high
            if self._waiters:
                self._notify()

    def _check(self, low: int, high: int) -> None:
        if not self.published < low <= high <= self.claimed or (
            self._early and not self._early.isdisjoint(range(low, high + 1))
        ):
            msg = f"{low} to {high} is not claimed, or published already"
            raise RingError(msg)

    def _end_of_run(self) -> int:
        """Return how far there is no gap, and forget what was early up to there."""
        high = self.published
        while high + 1 in self._early:
            high += 1
            self._early.remove(high)
        return high
