"""Batches that one drain task delivers later: the next attempt, and what is behind it.

Invariant (promises B1 and B3): no batch is delivered while one that was taken before
it, for the same handler and from one of the same partitions, is in the retry queue or
has a handler at work that cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from batchqueue_async._engine.draining.batch import Batch

T = TypeVar("T")


class RetryQueue(Generic[T]):
    """Batches that wait for a next attempt, or behind one that does.

    In the order in which they came; their partitions are paused meanwhile.
    """

    __slots__ = ("_drain_task", "batches")

    def __init__(self, drain_task: int) -> None:
        self._drain_task = drain_task
        self.batches: list[Batch[T]] = []

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __iter__(self) -> Iterator[Batch[T]]:
        return iter(self.batches)

    def add(self, batch: Batch[T]) -> None:
        if not batch.is_deferred:
            batch.is_deferred = True
            batch.pause_partitions()
        self.batches.append(batch)

    def defer_if_blocked(self, batch: Batch[T]) -> bool:
        """Whether it must not be delivered now; its `due` is when to look again."""
        ahead = [each.due for each in self.batches if batch.follows(each)]
        batch.due = max(ahead, default=batch.due)
        return bool(ahead) or batch.is_kept_out(self._drain_task)

    def take_due(self, now: float) -> list[Batch[T]]:
        """Take out what may be delivered now; its partitions stay paused."""
        staying: list[Batch[T]] = []
        due: list[Batch[T]] = []
        for batch in self.batches:
            stays = batch.due > now or batch.is_kept_out(self._drain_task)
            stays = stays or any(map(batch.follows, staying))
            (staying if stays else due).append(batch)
        self.batches = staying
        return due

    def dues(self) -> list[float]:
        """Return when to look again.

        What a stuck handler keeps out has no such time: the call's end wakes.
        """
        dues: list[float] = []
        kept_out: list[Batch[T]] = []
        for batch in self.batches:
            if batch.is_kept_out(self._drain_task) or any(map(batch.follows, kept_out)):
                kept_out.append(batch)
            else:
                dues.append(batch.due)
        return dues
