"""Which kind of partition a queue's config asks for.

A kind is imported by the first queue that asks for it: most programs have one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._policies.buffering import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.fairness import FairSelector
from batchqueue_async._policies.handler_options import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.rolling_partition import RollingPartition
    from batchqueue_async._engine.partitions.room import Room
    from batchqueue_async._engine.partitions.sized_partition import (
        SizedPartition,
        SizedRollingPartition,
    )

T = TypeVar("T")


def room_of(config: BatchQueueConfig[T], partitions: Sequence[Any]) -> Room | None:
    """Return what all partitions have in common; None where sizes don't count."""
    if not config.counts_sizes:
        return None
    from batchqueue_async._engine.partitions.room import Room  # noqa: PLC0415

    return Room(config, partitions)


def new_partition(
    config: BatchQueueConfig[T],
    index: int,
    on_drop: Callable[[list[T]], None],
    room: Room | None,
) -> Partition[T]:
    """Return a partition; `on_drop` gets what newer items displace."""
    size = config.buffer_size
    # Where it is found by trying, the handler's first limit follows.
    due = size if config.max_batch == AUTO else config.max_batch or size
    is_rolling = config.when_full is WhenFull.DROP_OLDEST
    if isinstance(config.selector, FairSelector):
        return _fair(config, config.selector, index, on_drop if is_rolling else None)
    if room is not None:
        sized, rolling = _kinds_with_sizes(config)
        if is_rolling:
            return rolling(room, index, size, due, on_drop)
        return sized(room, index, size, due)
    if is_rolling:
        return _rolling_kind(config)(index, size, due, on_drop)
    return _kind(config)(index, size, due)


def _kind(config: BatchQueueConfig[T]) -> type[Partition[T]]:
    """Return the kind that keeps what waits."""
    if not config.audit:
        return Partition
    from batchqueue_async._engine.partitions import audited_partition  # noqa: PLC0415

    return audited_partition.AuditedPartition


def _rolling_kind(config: BatchQueueConfig[T]) -> type[RollingPartition[T]]:
    """Return the kind that displaces its oldest items."""
    from batchqueue_async._engine.partitions import rolling_partition  # noqa: PLC0415

    if not config.audit:
        return rolling_partition.RollingPartition
    from batchqueue_async._engine.partitions import audited_partition  # noqa: PLC0415

    return audited_partition.AuditedRollingPartition


def _fair(
    config: BatchQueueConfig[T],
    selector: FairSelector[T, Any],
    index: int,
    on_drop: Callable[[list[T]], None] | None,
) -> Partition[T]:
    """Return one that has a buffer for each key."""
    from batchqueue_async._engine.partitions.fair_partition import (  # noqa: PLC0415
        FairPartition,
    )

    size = config.buffer_size
    due = size if config.max_batch == AUTO else config.max_batch or size
    fair = FairPartition[T](index, size, due, selector, on_drop)
    fair.entered = 0 if config.audit else None
    return fair


def _kinds_with_sizes(
    config: BatchQueueConfig[T],
) -> tuple[type[SizedPartition[T]], type[SizedRollingPartition[T]]]:
    """Return the kind that keeps what waits, and the one that displaces it."""
    from batchqueue_async._engine.partitions import sized_partition  # noqa: PLC0415

    if not config.audit:
        return sized_partition.SizedPartition, sized_partition.SizedRollingPartition
    from batchqueue_async._engine.partitions import audited_partition  # noqa: PLC0415

    return (
        audited_partition.AuditedSizedPartition,
        audited_partition.AuditedSizedRollingPartition,
    )
