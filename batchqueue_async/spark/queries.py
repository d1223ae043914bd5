"""What a frame tells about the streaming query that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchqueue_async import BatchQueueError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query_id(df: DataFrame) -> str:
    """Return the id of the query whose micro-batch this is.

    It comes from the checkpoint: the same after a restart, in whatever process and with
    whatever parallelism.
    """
    found = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        msg = "df must be a micro-batch of foreachBatch, got a frame without a query"
        raise BatchQueueError(msg)
    return found


def is_connect(df: object) -> bool:
    """Whether the frame belongs to Spark Connect, where there are no RDDs."""
    return ".connect." in type(df).__module__


def refuse_connect(df: object, what: str) -> None:
    """Refuse a frame of Spark Connect, where the queue is in another process."""
    if is_connect(df):
        msg = (
            f"{what} must be called in the driver's process, got a frame of Spark"
            " Connect; use write_partitions, or"
            ' writeStream.format("batchqueue")'
        )
        raise BatchQueueError(msg)


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
