"""Makes the frozen statistics from the living queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchqueue_async._engine.drain_task import DrainTask
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.lifecycle import Lifecycle
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.stats import (
    BatchQueueStats,
    DrainTaskStats,
    PartitionStats,
)

_SUMMED = (
    "accepted",
    "rejected",
    "waiting",
    "in_flight",
    "handled",
    "failed",
    "dropped",
    "unhandled",
    "returned",
    "capacity",
)


def snapshot(
    name: str, layout: Layout[Any], lifecycle: Lifecycle[Any]
) -> BatchQueueStats:
    """Return the statistics of one moment: nothing runs while they are collected."""
    partitions = tuple(
        _partition(partition, layout.owner_of(partition))
        for partition in layout.partitions
    )
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
        **{field: sum(getattr(p, field) for p in partitions) for field in _SUMMED},
    )


def _partition(partition: Partition[Any], owner: int | None) -> PartitionStats:
    accounts = partition.accounts
    # A thread that displaces items changes several counts.
    with partition.at_rest():
        waiting = len(partition.items)
        return PartitionStats(
            index=partition.index,
            owner=owner,
            accepted=accounts.taken_out + waiting,
            rejected=accounts.rejected,
            waiting=waiting,
            in_flight=accounts.in_flight,
            handled=accounts.handled,
            failed=accounts.failed,
            dropped=accounts.dropped,
            unhandled=accounts.unhandled,
            returned=accounts.returned,
            capacity=partition.maxsize,
        )


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
        load=sum(loads[p] for p in owned),
    )
