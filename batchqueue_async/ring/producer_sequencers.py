"""The sequencers for many producers and for one: what is published, and told of it."""

from __future__ import annotations

from .errors import RingError
from .sequence_barrier import WaitStrategy
from .sequencer import Sequencer


class MultiProducerSequencer(Sequencer):
    """Several producers claim and publish, each in its own time: tasks or threads.

    They may publish in any order, and consumers go as far as there is no gap. `cursor`
    is what is claimed, `published` what consumers may see.
    """

    published: int

    def __init__(self, capacity: int, wait: WaitStrategy | None = None) -> None:
        super().__init__(capacity, wait)
        # What is published beyond a gap.
        self._early: set[int] = set()

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
            if low > self.published + 1:
                early.update((low,) if low == high else range(low, high + 1))
                return
        self.published = high
        # After that: a signal handler may have published in the middle of it.
        while early and self.published + 1 in early:
            self.published += 1
            early.discard(self.published)
        if self._waiters:
            self._notify()

    def _check(self, low: int, high: int) -> None:
        early = self._early
        is_known = (
            low in early if low == high else not early.isdisjoint(range(low, high + 1))
        )
        if is_known or not self.published < low <= high <= self.claimed:
            msg = f"{low} to {high} is not claimed, or published already"
            raise RingError(msg)


class SingleProducerSequencer(MultiProducerSequencer):
    """One producer claims and publishes, in the order of its claims.

    So `cursor` is what is published: all up to it. Nobody checks that there is one
    producer only. Should a later claim be published first, by a second task, consumers
    see it when those before it have come.
    """

    @property
    def cursor(self) -> int:
        """The highest published sequence."""
        return self.published

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published and its slot not yet claimed again."""
        oldest = max(0, self.claimed - self.capacity + 1)
        return oldest <= sequence <= self.published
