"""What of a batch behind parts that have failed need not wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.draining.failed_batch import Dues

T = TypeVar("T")


def pieces_of(batch: Batch[T], dues: Dues[T]) -> list[Batch[T]]:
    """Return a batch in pieces of which each is behind these dues, or none of it is.

    Only where it is behind parts: who was sent the rest of those answers, so others
    need not wait. Where all of a batch has failed nobody may answer, and is not
    asked once more for each partition.

    Returns:
        Its pieces in order; none where it stays whole.
    """
    if batch.others is None or not dues.has_parts_ahead(batch):
        return []
    places: list[int] = []
    position, was_behind = 0, None
    for key, share in zip(batch.order_keys, batch.shares, strict=True):
        is_behind = key in dues.last
        if was_behind not in (None, is_behind):
            places.append(position)
        position, was_behind = position + share.count, is_behind
    if not places:
        return []
    pieces = batch.cut(places)
    for piece in pieces:
        piece.attempts, piece.give_up_at = batch.attempts, batch.give_up_at
    return pieces
