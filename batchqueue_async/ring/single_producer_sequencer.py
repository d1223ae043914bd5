"""The sequencer for one producer at a time."""

from __future__ import annotations

from .sequencer import MultiProducerSequencer


class SingleProducerSequencer(MultiProducerSequencer):
    """One producer claims and publishes, in the order of its claims.

    So all up to `cursor` is published. Nothing checks that there is one producer only.
    If a second task publishes a later claim first, consumers see it when all before it
    are published.
    """

    @property
    def cursor(self) -> int:
        """The highest published sequence."""
        return self.published

    def is_available(self, sequence: int) -> bool:
        """Whether the sequence is published and its slot not yet claimed again."""
        oldest = max(0, self.claimed - self.capacity + 1)
        return oldest <= sequence <= self.published
