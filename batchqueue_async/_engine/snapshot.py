"""Makes the frozen statistics from the living queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from batchqueue_async._engine.drain_task import DrainTask
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.lifecycle import Lifecycle
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.stats import (
    BatchQueueStats,
    DrainTaskStats,
    PartitionStats,
    Totals,
)

_SUMMED = tuple(field.name for field in fields(Totals))

# There may be tens of thousands of partitions. A frozen dataclass sets its fields by
# name, one after the other; their slots' setters do the same in a fifth of the time.
_new = object.__new__
_accepted, _rejected, _waiting, _in_flight, _handled, _failed = (
    getattr(PartitionStats, name).__set__ for name in _SUMMED[:6]
)
_dropped, _unhandled, _returned, _capacity = (
    getattr(PartitionStats, name).__set__ for name in _SUMMED[6:]
)
_index = getattr(PartitionStats, "index").__set__  # noqa: B009 - it is no int there
_owner = getattr(PartitionStats, "owner").__set__  # noqa: B009


def snapshot(
    name: str, layout: Layout[Any], lifecycle: Lifecycle[Any]
) -> BatchQueueStats:
    """Return the statistics of one moment: nothing runs while they are collected."""
    partitions = tuple(map(_partition, layout.partitions, layout.ownership.owners()))
    loads = layout.loads.now()
    return BatchQueueStats(
        name=name,
        partitions=partitions,
        drain_tasks=tuple(
            _drain_task(each, layout.ownership.owned_by(each.index), loads)
            for each in lifecycle.drain_tasks
        ),
        last_round=lifecycle.last_round,
        not_closed=lifecycle.hooks.not_closed,
        **{field: sum(map(attrgetter(field), partitions)) for field in _SUMMED},
    )


def _partition(partition: Partition[Any], owner: int | None) -> PartitionStats:
    if not partition.is_shared():
        return _counted(partition, owner)
    # A thread that displaces items changes several counts.
    with partition.at_rest():
        return _counted(partition, owner)


def _counted(partition: Partition[Any], owner: int | None) -> PartitionStats:
    accounts, waiting = partition.accounts, len(partition.items)
    stats = _new(PartitionStats)
    _index(stats, partition.index)
    _owner(stats, owner)
    _accepted(stats, accounts.taken_out + waiting)
    _rejected(stats, accounts.rejected)
    _waiting(stats, waiting)
    _in_flight(stats, accounts.in_flight)
    _handled(stats, accounts.handled)
    _failed(stats, accounts.failed)
    _dropped(stats, accounts.dropped)
    _unhandled(stats, accounts.unhandled)
    _returned(stats, accounts.returned)
    _capacity(stats, partition.maxsize)
    return stats


def _drain_task(
    drain_task: DrainTask[Any],
    owned: tuple[int, ...],
    loads: Sequence[float],
) -> DrainTaskStats:
    return DrainTaskStats(
        index=drain_task.index,
        partitions=owned,
        cycles=drain_task.cycles,
        busy=drain_task.busy,
        load=sum(map(loads.__getitem__, owned)),
    )
