"""Which kind of partition a queue's config asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.rolling_partition import RollingPartition
from batchqueue_async._policies.buffering import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.room import Room

T = TypeVar("T")


def room_of(config: BatchQueueConfig[T], partitions: Sequence[Any]) -> Room | None:
    """Return what all partitions have in common; None where sizes don't count."""
    if not config.counts_sizes:
        return None
    from batchqueue_async._engine.partitions.room import (  # noqa: PLC0415 - for few
        Room,
    )

    return Room(config, partitions)


def new_partition(
    config: BatchQueueConfig[T],
    index: int,
    on_drop: Callable[[list[T]], None],
    room: Room | None,
) -> Partition[T]:
    """Return a partition; `on_drop` gets what newer items displace."""
    size = config.buffer_size
    due = config.max_batch or size
    is_rolling = config.when_full is WhenFull.DROP_OLDEST
    if room is not None:
        from batchqueue_async._engine.partitions.sized_partition import (  # noqa: PLC0415
            SizedPartition,
            SizedRollingPartition,
        )

        if is_rolling:
            return SizedRollingPartition(room, index, size, due, on_drop)
        return SizedPartition(room, index, size, due)
    if is_rolling:
        return RollingPartition(index, size, due, on_drop)
    return Partition(index, size, due)
