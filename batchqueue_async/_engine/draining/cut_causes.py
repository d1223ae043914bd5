"""Why batches were cut where they were, for queues that measure their handlers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from batchqueue_async._engine.handlers.meter import CLOSE, DUE, FLUSH, FULL, LINGER

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.partitions.partition import Partition

Causes: TypeAlias = "dict[Partition[Any], int]"


def causes_of(partitions: Iterable[Partition[Any]]) -> Causes:
    """Return why each partition is taken from; to be asked before that is done."""
    return {partition: _cause(partition) for partition in partitions}


def _cause(partition: Partition[Any]) -> int:
    if partition.is_closed:
        return CLOSE
    if partition.accounts.is_watched:
        return FLUSH
    if partition.is_due():
        return FULL
    return LINGER if partition.ages.linger else DUE


def note_cuts(batches: Iterable[Batch[Any]], causes: Causes) -> None:
    """Book the batches that were made of it, with their handlers."""
    for batch in batches:
        if batch.registration is None or (meter := batch.registration.meter) is None:
            continue
        most = batch.registration.max_batch
        # A piece of several partitions, each of which holds less.
        is_full = most is not None and len(batch) >= most
        why = max(causes[share.partition] for share in batch.shares)
        meter.cut(len(batch), FULL if is_full else why)
