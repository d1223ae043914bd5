"""Handlers for tests: the library's own, and one that has `consume` alone."""

from typing import Generic, TypeVar

from batchqueue_async.testing import RecordingHandler

__all__ = ["RecordingConsumer", "RecordingHandler"]

T = TypeVar("T")


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
