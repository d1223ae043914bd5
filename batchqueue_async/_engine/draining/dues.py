"""When deferred batches are due, and what of a batch behind them need not wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from batchqueue_async._engine.draining.batch import Batch, OrderKey
from batchqueue_async._engine.draining.batch_stages import PART_WAITING

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock

T = TypeVar("T")


class Dues(Generic[T]):
    """When batches of one list are due: of thousands, new ones alone are looked at."""

    __slots__ = ("_seen", "batches", "last", "locks", "soonest", "whole")

    def __init__(self, batches: list[Batch[T]]) -> None:
        self.batches = batches
        self._seen = 0
        # The last due time of each order key, and the earliest of all.
        self.last: dict[OrderKey, float] = {}
        # The keys of those whose handler did not say that a part only has failed.
        self.whole: set[OrderKey] = set()
        # The locks of their handlers.
        self.locks: set[HandlerLock] = set()
        self.soonest = math.inf

    def note_new(self) -> None:
        """Look at the batches that were appended since the last call."""
        while self._seen < len(self.batches):
            batch = self.batches[self._seen]
            self.note(batch, batch.order_keys)

    def note(self, batch: Batch[T], keys: Sequence[OrderKey]) -> None:
        """Look at the next batch, which has these keys."""
        due, last = batch.due, self.last
        for key in keys:
            if key not in last or last[key] < due:
                last[key] = due
        if batch.stage is not PART_WAITING:
            self.whole.update(keys)
        self.locks.update(lock for lock, _ in keys[:1])
        self.soonest = min(self.soonest, due)
        self._seen += 1

    def has_parts_ahead(self, batch: Batch[T]) -> bool:
        """Whether it is behind parts of batches, and behind nothing else."""
        keys = batch.order_keys
        return self.whole.isdisjoint(keys) and not self.last.keys().isdisjoint(keys)

    def apart(self, batch: Batch[T]) -> list[Batch[T]]:
        """Return a batch in pieces of which each is behind these, or none of it is.

        Only where it is behind parts: who was sent the rest of those answers, so others
        need not wait. Where all of a batch has failed nobody may answer, and is not
        asked once more for each partition.

        Returns:
            Its pieces in order; none where it stays whole.
        """
        if batch.others is None or not self.has_parts_ahead(batch):
            return []
        places: list[int] = []
        position, was_behind = 0, None
        for key, share in zip(batch.order_keys, batch.shares, strict=True):
            is_behind = key in self.last
            if was_behind not in (None, is_behind):
                places.append(position)
            position, was_behind = position + share.count, is_behind
        if not places:
            return []
        pieces = batch.cut(places)
        for piece in pieces:
            piece.attempts, piece.give_up_at = batch.attempts, batch.give_up_at
        return pieces
