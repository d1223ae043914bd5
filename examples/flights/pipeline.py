"""The queues between Spark and the database, and how they are chained.

    events ─┬─ METRICS_L1_AGGREGATION ── METRICS_L2_PERSISTENCE ─┬─ JDBC_BATCH_...
            ├─ TOPN_PERSISTENCE ─────────────────────────────────┘
            └─ CANCELLATION_EXPORTER ── a JSON Lines file

What each of them is made for, and with which settings, stands in `stages`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchqueue_async import (
    BatchQueueError,
    BatchQueueManager,
    LoopThread,
    SyncBatchQueue,
    in_thread,
)

from .database import Connect, DatabaseWriter
from .events import Arrival, Cancellation, Departure, Event
from .exporting import JsonLines
from .metrics import Window, metrics_of
from .stages import (
    FirstFailure,
    open_database,
    open_exporter,
    open_l1,
    open_l2,
    open_topn,
)
from .topn import TopDelay


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The queues as the synchronous side sees them."""

    l1: SyncBatchQueue[Window]
    l2: SyncBatchQueue[Window]
    topn: SyncBatchQueue[Departure | Arrival]
    exporter: SyncBatchQueue[Cancellation]
    database: SyncBatchQueue[Window | TopDelay]
    failure: FirstFailure

    @property
    def queues(self) -> Mapping[str, SyncBatchQueue[Any]]:
        """All queues by name, the first stages first."""
        stages = (self.l1, self.topn, self.exporter, self.l2, self.database)
        return {queue.name: queue for queue in stages}

    def produce(self, events: list[Event]) -> None:
        """Hand events to every queue that wants them; wait while one is full."""
        delays = [event for event in events if isinstance(event, Departure | Arrival)]
        cancelled = [event for event in events if isinstance(event, Cancellation)]
        metrics = list(metrics_of(events))
        accepted = (
            self.l1.produce_many(metrics)
            + self.topn.produce_many(delays)
            + self.exporter.produce_many(cancelled)
        )
        if accepted < len(metrics) + len(delays) + len(cancelled):
            msg = "a queue closed while events were produced"
            raise BatchQueueError(msg)

    def flush(self) -> None:
        """Wait until all that was produced is in the database and the file."""
        for queue in self.queues.values():
            queue.flush()


@contextmanager
def open_pipeline(
    connect: Connect, export: Path, *, writers: int = 1
) -> Iterator[Pipeline]:
    """Run the queues on a loop of their own, on another thread.

    Args:
        connect: Connects to the database.
        export: The file for cancellations.
        writers: How many connections write at a time.
    """
    with (
        LoopThread() as loop_thread,
        loop_thread.portal.wrap_async_context_manager(
            _queues(connect, export, writers)
        ) as pipeline,
    ):
        yield pipeline


@asynccontextmanager
async def _queues(
    connect: Connect, export: Path, writers: int
) -> AsyncIterator[Pipeline]:
    # Created from the database upwards: the last one created is closed first, so every
    # stage can still pass on what it holds while it closes.
    failure = FirstFailure()
    async with BatchQueueManager() as manager:
        writer = DatabaseWriter(connect)
        database = await open_database(manager, writer, failure, writers=writers)
        l2 = await open_l2(manager, database, failure)
        l1 = await open_l1(manager, l2, failure)
        topn = await open_topn(manager, database, failure)
        exporter = await open_exporter(manager, in_thread(JsonLines(export)), failure)
        yield Pipeline(
            l1=SyncBatchQueue(l1),
            l2=SyncBatchQueue(l2),
            topn=SyncBatchQueue(topn),
            exporter=SyncBatchQueue(exporter),
            database=SyncBatchQueue(database),
            failure=failure,
        )
