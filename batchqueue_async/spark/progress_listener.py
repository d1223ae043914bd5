"""A query's progress and its queue's statistics, together in one record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.streaming.listener import StreamingQueryListener

from batchqueue_async import BatchQueueStats, SyncBatchQueue
from batchqueue_async._functions import require_sync_function
from batchqueue_async._log import logger
from batchqueue_async._validation import require_instance

from .executor_stats import OUTCOMES

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )


Attributes: TypeAlias = Mapping[str, str | int | float]
"""Names with dots and plain values: what OpenTelemetry takes as attributes."""


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """What was known about a query and its queue at one moment.

    Attributes:
        event: `started`, `progress` or `terminated`.
        attributes: All of it, by name; ready for a log record, a span event or a
            metric's attributes. Values are str, int or float.
    """

    event: str
    attributes: Attributes

    def __str__(self) -> str:
        pairs = (f"{name}={value}" for name, value in self.attributes.items())
        return f"query {self.event}: {' '.join(pairs)}"


class QueueProgressListener(StreamingQueryListener):
    """Logs each progress of the queries together with the state of their queue.

    `spark.streams.addListener(QueueProgressListener(sync_queue))`. One record (level
    INFO, logger "batchqueue_async") per progress, start and end of any query of the
    session; a query that ended with an error is a WARNING. `record.attributes` of the
    log record holds them by name.

    It works in the driver, classic or Spark Connect. What fails here is logged, and
    harms neither the query nor the queue; of a closed queue the last numbers are shown.

    Args:
        sync_queue: The queue that the queries write to.
        on_record: Gets every record, on a thread of Spark's; for OpenTelemetry, for
            instance `lambda it: span.add_event(it.event, it.attributes)`.

    Raises:
        TypeError: If an argument is of the wrong kind.
    """

    def __init__(
        self,
        sync_queue: SyncBatchQueue[Any],
        on_record: Callable[[QueryRecord], object] | None = None,
    ) -> None:
        super().__init__()
        require_instance("sync_queue", sync_queue, SyncBatchQueue, "a SyncBatchQueue")
        if on_record is not None:
            told = "one argument, a QueryRecord"
            require_sync_function("on_record", on_record, 1, told)
        self._sync_queue = sync_queue
        self._on_record = on_record

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Record the start of a query."""
        self._record("started", _of_query(event.id, event.runId, event.name))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Record a micro-batch."""
        self._record("progress", _of_progress(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Record nothing: an idle query would fill the log."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Record the end of a query, and why."""
        query = _of_query(event.id, event.runId, None)
        error = event.exception
        if error is None:
            self._record("terminated", query)
        else:
            failed: Attributes = {**query, "exception.message": cause_of(error)}
            self._record("terminated", failed, logging.WARNING)

    def _record(self, event: str, query: Attributes, level: int = logging.INFO) -> None:
        try:
            queue = _of_queue(self._sync_queue.name, self._sync_queue.stats())
            record = QueryRecord(event, {**query, **queue})
            logger.log(level, "%s", record, attributes=record.attributes)
            if self._on_record is not None:
                self._on_record(record)
        except Exception:  # noqa: BLE001 - whatever `on_record` raises
            logger.exception("a query's record is incomplete")


def _of_query(query: object, run: object, name: str | None) -> dict[str, str]:
    named = {} if name is None else {"spark.query.name": name}
    return {"spark.query.id": str(query), "spark.query.run_id": str(run), **named}


def _of_progress(progress: StreamingQueryProgress) -> Attributes:
    return {
        **_of_query(progress.id, progress.runId, progress.name),
        "spark.query.batch_id": progress.batchId,
        "spark.query.batch_seconds": progress.batchDuration / 1000,
        "spark.query.input_rows": progress.numInputRows,
        "spark.query.input_rows_per_second": progress.inputRowsPerSecond,
        "spark.query.processed_rows_per_second": progress.processedRowsPerSecond,
    }


def _of_queue(name: str, stats: BatchQueueStats) -> Attributes:
    counts = ("accepted", "rejected", "waiting", "in_flight", *OUTCOMES)
    return {
        "batchqueue.name": name,
        **{f"batchqueue.{count}": getattr(stats, count) for count in counts},
        "batchqueue.used_fraction": stats.used_fraction,
    }


def cause_of(text: str) -> str:
    """Return the line of a failed query's report that says why.

    Spark quotes Python's whole traceback, between stacks of Java's and its own plans.
    """
    lines = text.strip().splitlines()
    cause, in_traceback = (lines or ["unknown"])[0], False
    for line in lines:
        if "Traceback (most recent call last)" in line:
            in_traceback = True
        elif in_traceback and line and not line.startswith((" ", "\t")):
            # The first line that is not indented ends a traceback. Of several, each the
            # cause of the next, the last one is what was raised.
            cause, in_traceback = line, False
    return cause
