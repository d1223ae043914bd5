"""The queues of executors, and streaming queries, for whoever watches the driver."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from batchqueue_async import BatchQueueStats
from batchqueue_async._wording import kind_of

from .executor_stats import counted, ledger_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class SparkJobs:
    """What the queues on a session's executors have done: a target of `telemetry`'s.

    Beside the driver's own queues, in `batchqueue top`, on the page and in metrics::

        jobs = SparkJobs(spark)
        open_view([loop_thread, jobs], "queues.sock")

    Make it before the frames: tasks tell their counts only if somebody asked for them
    by then. Counted are the queues of `map_async`, `map_partitions_with_queue` and
    `write_partitions`, as `NAME (executors)`, all processes' together, and the rows of
    each streaming query, as `query NAME`, whatever it writes to.

    A task's counts come when it ends, and only if it ends well; what waits in it
    meanwhile is not known here. So `waiting` and `in_flight` are 0, and there are no
    partitions and drain tasks. A frame that is computed again counts again, as does a
    task whose result Spark lost. A query's rows count when their micro-batch is done.

    With Spark Connect, which has no accumulators, there are streaming queries, and what
    `write_partitions` returned. What writes by `format("batchqueue")` as a batch, or
    uses an `executor_queue` by itself, is not seen: Spark has no way for that.

    `close`, or leaving `with`, ends listening to queries.

    Args:
        spark: The session, classic or of Spark Connect. All `SparkJobs` of one
            application have the same counts of executors.

    Raises:
        TypeError: It is no session.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(spark, "streams"):
            msg = f"spark must be a SparkSession, got {kind_of(spark)}"
            raise TypeError(msg)
        self._ledger = ledger_of(spark)
        self._spark: SparkSession | None = spark
        self._queries = _Queries()
        spark.streams.addListener(self._queries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queue_stats(self) -> tuple[BatchQueueStats, ...]:
        """Return what is known by now, executors' queues first; from any thread."""
        executors = [
            replace(stats, name=f"{name} (executors)")
            for name, stats in self._ledger.total().items()
        ]
        return (*executors, *self._queries.stats())

    def close(self) -> None:
        """Listen no more; the last counts stay. Idempotent."""
        spark, self._spark = self._spark, None
        if spark is not None:
            # The session may have been stopped before.
            with contextlib.suppress(Exception):
                spark.streams.removeListener(self._queries)


class _Queries(StreamingQueryListener):
    """Adds up the rows of streaming queries, on a thread of Spark's."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        # By query: its name, and its rows so far.
        self._known: dict[str, tuple[str, int]] = {}

    def stats(self) -> list[BatchQueueStats]:
        with self._lock:
            known = [*self._known.values()]
        return [counted(f"query {name}", handled=rows) for name, rows in known]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self._add(str(event.id), event.name, 0)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        self._add(str(progress.id), progress.name, progress.numInputRows)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Keep the query's count."""

    def _add(self, query: str, name: str | None, rows: int) -> None:
        with self._lock:
            _, before = self._known.get(query, ("", 0))
            self._known[query] = name or query, before + rows
