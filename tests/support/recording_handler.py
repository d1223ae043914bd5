"""Handlers for tests: the library's, without `on_idle`; and one with `consume` alone.

A drain task looks by itself, again and again, for the sake of `on_idle`: then a wake-up
that is lost does not show.
"""

from typing import Generic, TypeVar

from batchqueue_async import testing

__all__ = ["RecordingConsumer", "RecordingHandler"]

T = TypeVar("T")


class RecordingHandler(testing.RecordingHandler[T]):
    """The library's, for tests in which nobody asks for `on_idle`."""

    on_idle = None  # type: ignore[assignment]


class RecordingConsumer(Generic[T]):
    """Has `consume` alone: a handler without the optional methods."""

    def __init__(self) -> None:
        self.batches: list[list[T]] = []

    @property
    def items(self) -> list[T]:
        """Every item of every batch, in the order received."""
        return [item for batch in self.batches for item in batch]

    async def consume(self, batch: list[T]) -> None:
        """Record the batch."""
        self.batches.append(list(batch))
