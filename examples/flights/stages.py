"""The queues, one for each stage; names and settings are the original's in SkyWalking.

But for one: L1 waits when it is full, where the original drops. Only so can the totals
be proven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchqueue_async import (
    BatchHandler,
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
    WhenFull,
)

from .events import Arrival, Cancellation, Departure
from .merging import merging
from .metrics import METRICS, Window
from .topn import DelaysOfEpoch, LongestDelays

TOP_SIZE = 10


@dataclass(slots=True)
class FirstFailure:
    """The `on_error` of every queue: the run stops at the first failure."""

    error: BaseException | None = None

    def __call__(self, _: list[Any], error: BaseException) -> None:
        """Keep the first error; the batch is lost, so the totals can't be right."""
        self.error = self.error or error


async def open_database(
    manager: BatchQueueManager, writer: BatchHandler[Any], failure: FirstFailure
) -> BatchQueue[Any]:
    """Return the queue that writes rows in batches."""
    return await manager.create(
        "JDBC_BATCH_PERSISTENCE",
        BatchQueueConfig[Any](
            # The original runs four over a pool of connections. SQLite has one writer
            # at a time, and no report of top delays may overtake an earlier one.
            drain_tasks=DrainTaskPolicy.fixed(1),
            partitions=PartitionPolicy.fixed(1),
            buffer_size=10_000,
            when_full=WhenFull.WAIT,
            consumer=writer,
            idle=IdleBackoff(0.001, 0.020),
            on_error=failure,
        ),
    )


async def open_l2(
    manager: BatchQueueManager, database: BatchQueue[Any], failure: FirstFailure
) -> BatchQueue[Window]:
    """Return the queue that merges what L1 passes on, and spares the database rows."""
    queue = await manager.create(
        "METRICS_L2_PERSISTENCE",
        BatchQueueConfig[Window](
            drain_tasks=DrainTaskPolicy.cpu_cores_with_base(1, 0.25),
            partitions=PartitionPolicy.adaptive(),
            buffer_size=2_000,
            when_full=WhenFull.WAIT,
            idle=IdleBackoff(0.001, 0.050),
            rebalancing=Rebalancing(interval=10.0),
            on_error=failure,
        ),
    )
    for metric in METRICS:
        queue.add_handler(metric, merging(database, every=2.0, at_most=10_000))
    return queue


async def open_l1(
    manager: BatchQueueManager, l2: BatchQueue[Window], failure: FirstFailure
) -> BatchQueue[Window]:
    """Return the queue that merges single events into windows."""
    queue = await manager.create(
        "METRICS_L1_AGGREGATION",
        BatchQueueConfig[Window](
            drain_tasks=DrainTaskPolicy.cpu_cores(1.0),
            partitions=PartitionPolicy.adaptive(),
            buffer_size=20_000,
            # Merging all of these at once would hold up the loop on a busy machine.
            max_batch=1_000,
            when_full=WhenFull.WAIT,
            idle=IdleBackoff(0.001, 0.050),
            rebalancing=Rebalancing(interval=10.0),
            on_error=failure,
        ),
    )
    for metric in METRICS:
        queue.add_handler(metric, merging(l2, every=0.5, at_most=10_000))
    return queue


async def open_topn(
    manager: BatchQueueManager,
    database: BatchQueue[Any],
    failure: FirstFailure,
    *,
    by_epoch: bool = False,
) -> BatchQueue[Departure | Arrival]:
    """Return the queue that ranks delays: of the whole run, or of each epoch alone."""
    queue = await manager.create(
        "TOPN_PERSISTENCE",
        BatchQueueConfig[Departure | Arrival](
            drain_tasks=DrainTaskPolicy.fixed(1),
            partitions=PartitionPolicy.adaptive(),
            buffer_size=1_000,
            when_full=WhenFull.WAIT,
            idle=IdleBackoff(0.010, 0.100),
            on_error=failure,
        ),
    )
    ranked = DelaysOfEpoch if by_epoch else LongestDelays
    for event in (Departure, Arrival):
        handler: LongestDelays[Any] = ranked(
            event.__name__, database, size=TOP_SIZE, every=1.0
        )
        queue.add_handler(event, handler)
    return queue


async def open_exporter(
    manager: BatchQueueManager,
    exporter: BatchHandler[Cancellation],
    failure: FirstFailure,
) -> BatchQueue[Cancellation]:
    """Return the queue that exports cancellations."""
    return await manager.create(
        "CANCELLATION_EXPORTER",
        BatchQueueConfig[Cancellation](
            drain_tasks=DrainTaskPolicy.fixed(1),
            partitions=PartitionPolicy.fixed(1),
            buffer_size=20_000,
            when_full=WhenFull.WAIT,
            consumer=exporter,
            idle=IdleBackoff(0.001, 0.200),
            on_error=failure,
        ),
    )
