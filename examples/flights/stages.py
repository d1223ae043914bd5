"""The queues, one for each stage, named and set as the original's in SkyWalking.

What differs, and why:

* L1 waits when it is full, where the original drops: only so can the totals be proven.
  It takes 1,000 items at a time, where the original takes all: merging 20,000 at once
  would hold up the event loop, which the original's threads don't share.
* The database has four writers with a connection each, as the original, where it is
  PostgreSQL. A type keeps to one of them, so that of two reports of a day's delays the
  later one wins. SQLite lets one write at a time, and a stream has one transaction for
  an epoch: those have one. On executors tasks write, as many as run.
* L2 passes on after 2 s and TopN reports after 1 s, where the original waits for 25 s
  and 10 minutes: a run takes seconds. On executors both do so at the end of their task.
* The exporter has a name of its own, as each of the original's has; what it exports
  here is what was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from batchqueue_async import (
    BatchHandler,
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    IdleBackoff,
    Merging,
    PartitionPolicy,
    Rebalancing,
    WhenFull,
)

from .events import Arrival, Cancellation, Departure
from .merging import Then, merging
from .metrics import METRICS, Window
from .topn import DelaysOfEpoch, Downstream, LongestDelays

OnError: TypeAlias = Callable[[list[Any], BaseException], None] | None

TOP_SIZE = 10

L1 = "METRICS_L1_AGGREGATION"
L2 = "METRICS_L2_PERSISTENCE"
DATABASE = "JDBC_BATCH_PERSISTENCE"
TOPN = "TOPN_PERSISTENCE"
EXPORTER = "CANCELLATION_EXPORTER"


@dataclass(slots=True)
class FirstFailure:
    """The `on_error` of every queue: the run stops at the first failure."""

    error: BaseException | None = None

    def __call__(self, _: list[Any], error: BaseException) -> None:
        """Keep the first error; the batch is lost, so the totals can't be right."""
        self.error = self.error or error


def database_config(
    writer: BatchHandler[Any], on_error: OnError, writers: int
) -> BatchQueueConfig[Any]:
    """Return how the queue is set that writes rows in batches."""
    return BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(writers),
        partitions=PartitionPolicy.fixed(writers),
        buffer_size=10_000,
        when_full=WhenFull.WAIT,
        consumer=writer,
        idle=IdleBackoff(0.001, 0.020),
        on_error=on_error,
    )


def l2_config(on_error: OnError = None) -> BatchQueueConfig[Window]:
    """Return how the queue is set that merges what L1 passes on."""
    return BatchQueueConfig[Window](
        drain_tasks=DrainTaskPolicy.cpu_cores_with_base(1, 0.25),
        partitions=PartitionPolicy.adaptive(),
        buffer_size=2_000,
        when_full=WhenFull.WAIT,
        idle=IdleBackoff(0.001, 0.050),
        rebalancing=Rebalancing(interval=10.0),
        on_error=on_error,
    )


def l1_config(on_error: OnError = None) -> BatchQueueConfig[Window]:
    """Return how the queue is set that merges single events into windows."""
    return BatchQueueConfig[Window](
        drain_tasks=DrainTaskPolicy.cpu_cores(1.0),
        partitions=PartitionPolicy.adaptive(),
        buffer_size=20_000,
        max_batch=1_000,
        when_full=WhenFull.WAIT,
        idle=IdleBackoff(0.001, 0.050),
        rebalancing=Rebalancing(interval=10.0),
        on_error=on_error,
    )


def topn_config(on_error: OnError = None) -> BatchQueueConfig[Departure | Arrival]:
    """Return how the queue is set that ranks delays."""
    return BatchQueueConfig[Departure | Arrival](
        drain_tasks=DrainTaskPolicy.fixed(1),
        partitions=PartitionPolicy.adaptive(),
        buffer_size=1_000,
        when_full=WhenFull.WAIT,
        idle=IdleBackoff(0.010, 0.100),
        on_error=on_error,
    )


def exporter_config(
    exporter: BatchHandler[Cancellation], on_error: OnError = None
) -> BatchQueueConfig[Cancellation]:
    """Return how the queue is set that exports cancellations."""
    return BatchQueueConfig[Cancellation](
        drain_tasks=DrainTaskPolicy.fixed(1),
        partitions=PartitionPolicy.fixed(1),
        buffer_size=20_000,
        when_full=WhenFull.WAIT,
        consumer=exporter,
        idle=IdleBackoff(0.001, 0.200),
        on_error=on_error,
    )


def merging_of_l1(then: Then) -> Mapping[type[Window], Merging[Window]]:
    """Return L1's handlers: each passes on what it has merged in half a second."""
    return {metric: merging(then, every=0.5, at_most=10_000) for metric in METRICS}


def merging_of_l2(then: Then) -> Mapping[type[Window], Merging[Window]]:
    """Return L2's handlers, which spare the database rows."""
    return {metric: merging(then, every=2.0, at_most=10_000) for metric in METRICS}


def ranking(
    then: Downstream, *, every: float, by_epoch: bool
) -> Mapping[type[Departure | Arrival], LongestDelays[Any]]:
    """Return TopN's handlers: of the whole run, or of each epoch alone."""
    ranked = DelaysOfEpoch if by_epoch else LongestDelays
    return {
        event: ranked(event.__name__, then, size=TOP_SIZE, every=every)
        for event in (Departure, Arrival)
    }


async def open_database(
    manager: BatchQueueManager,
    writer: BatchHandler[Any],
    failure: FirstFailure,
    *,
    writers: int = 1,
) -> BatchQueue[Any]:
    """Return the queue that writes rows in batches, so many at a time."""
    return await manager.create(DATABASE, database_config(writer, failure, writers))


async def open_l2(
    manager: BatchQueueManager, database: BatchQueue[Any], failure: FirstFailure
) -> BatchQueue[Window]:
    """Return the queue that merges what L1 passes on."""
    queue = await manager.create(L2, l2_config(failure))
    for metric, handler in merging_of_l2(database).items():
        queue.add_handler(metric, handler)
    return queue


async def open_l1(
    manager: BatchQueueManager, l2: BatchQueue[Window], failure: FirstFailure
) -> BatchQueue[Window]:
    """Return the queue that merges single events into windows."""
    queue = await manager.create(L1, l1_config(failure))
    for metric, handler in merging_of_l1(l2).items():
        queue.add_handler(metric, handler)
    return queue


async def open_topn(
    manager: BatchQueueManager,
    database: BatchQueue[Any],
    failure: FirstFailure,
    *,
    by_epoch: bool = False,
) -> BatchQueue[Departure | Arrival]:
    """Return the queue that ranks delays."""
    queue = await manager.create(TOPN, topn_config(failure))
    for event, handler in ranking(database, every=1.0, by_epoch=by_epoch).items():
        queue.add_handler(event, handler)
    return queue


async def open_exporter(
    manager: BatchQueueManager,
    exporter: BatchHandler[Cancellation],
    failure: FirstFailure,
) -> BatchQueue[Cancellation]:
    """Return the queue that exports cancellations."""
    return await manager.create(EXPORTER, exporter_config(exporter, failure))
