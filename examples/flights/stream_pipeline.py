"""The same queues behind one more, which takes the events of a micro-batch.

    EVENTS ─┬─ METRICS_L1_AGGREGATION ── METRICS_L2_PERSISTENCE ─┬─ JDBC_BATCH_...
            ├─ TOPN_PERSISTENCE ─────────────────────────────────┤
            └─ CANCELLATION_EXPORTER ────────────────────────────┘

A flush of the first queue flushes all of them, so that what Spark commits afterwards
is really in the sink.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    BatchQueueManager,
    DeliveryError,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async.sinks import EpochWriter

from .database import Connect
from .epochs import FlightEpochs, Result
from .events import Arrival, Cancellation, Departure, Event
from .metrics import metrics_of
from .stages import (
    FirstFailure,
    open_database,
    open_exporter,
    open_l1,
    open_l2,
    open_topn,
)


@dataclass(frozen=True, slots=True)
class StreamPipeline:
    """The queues as the synchronous side sees them, and where they write."""

    events: SyncBatchQueue[Event]
    writer: EpochWriter[Result]
    queues: Mapping[str, SyncBatchQueue[Any]]


class FanOut:
    """The handler of the first queue: hands events on to whoever wants them.

    Args:
        l1: Takes what events add to each metric.
        topn: Takes departures and arrivals.
        exporter: Takes cancellations.
        behind: The queues that those pass things on to, in this order.
    """

    def __init__(
        self,
        l1: BatchQueue[Any],
        topn: BatchQueue[Any],
        exporter: BatchQueue[Any],
        behind: Sequence[BatchQueue[Any]],
    ) -> None:
        self._l1, self._topn, self._exporter = l1, topn, exporter
        self._chain = (l1, topn, exporter, *behind)

    async def consume(self, batch: list[Event]) -> None:
        delays = [event for event in batch if isinstance(event, Departure | Arrival)]
        cancelled = [event for event in batch if isinstance(event, Cancellation)]
        metrics = list(metrics_of(batch))
        accepted = (
            await self._l1.produce_many(metrics)
            + await self._topn.produce_many(delays)
            + await self._exporter.produce_many(cancelled)
        )
        if accepted < len(metrics) + len(delays) + len(cancelled):
            msg = "a queue closed while events were handed on"
            raise BatchQueueError(msg)

    async def on_flush(self) -> None:
        """Flush the next queues, each after those that feed it."""
        failures = []
        for queue in self._chain:
            try:
                await queue.flush()
            except DeliveryError as error:
                # The others must not keep anything of an epoch that is given up.
                failures.append(error)
        if failures:
            raise failures[0]


@contextmanager
def open_stream_pipeline(connect: Connect) -> Iterator[StreamPipeline]:
    """Run the queues on a loop of their own, on another thread."""
    with (
        LoopThread() as loop_thread,
        loop_thread.portal.wrap_async_context_manager(_queues(connect)) as pipeline,
    ):
        yield pipeline


@asynccontextmanager
async def _queues(connect: Connect) -> AsyncIterator[StreamPipeline]:
    failure = FirstFailure()
    writer = EpochWriter[Result](FlightEpochs(connect))
    async with BatchQueueManager() as manager:
        database = await open_database(manager, writer, failure)
        l2 = await open_l2(manager, database, failure)
        l1 = await open_l1(manager, l2, failure)
        topn = await open_topn(manager, database, failure, by_epoch=True)
        exporter = await open_exporter(manager, _Passing(database), failure)
        fan_out = FanOut(l1, topn, exporter, (l2, database))
        # Small batches: the fan-out of many would hold up the loop.
        config = BatchQueueConfig[Event](
            consumer=fan_out, max_batch=1_000, on_error=failure
        )
        events = await manager.create("EVENTS", config)
        stages = (events, l1, topn, exporter, l2, database)
        queues = {queue.name: SyncBatchQueue(queue) for queue in stages}
        yield StreamPipeline(queues["EVENTS"], writer, queues)


class _Passing:
    """The exporter's handler: cancellations belong to the epoch, too."""

    def __init__(self, database: BatchQueue[Any]) -> None:
        self._database = database

    async def consume(self, batch: list[Cancellation]) -> None:
        if await self._database.produce_many(batch) < len(batch):
            msg = f"{self._database.name} closed before the stage that feeds it"
            raise BatchQueueError(msg)
