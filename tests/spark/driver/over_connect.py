"""What a client of Spark Connect does with its own queues; part of a program."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    LoopThread,
    SyncBatchQueue,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTING = "batchqueue_async.sinks.counting_staged:CountingStagedSink.from_options"


class Keeping:
    """A handler that keeps what it gets, until it is told to fail."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.error: Exception | None = None

    async def consume(self, batch: list[Any]) -> None:
        """Keep a batch."""
        if self.error is not None:
            raise self.error
        self.items.extend(batch)


def open_somewhere(loop_thread: LoopThread) -> SyncBatchQueue[Any]:
    """Open a queue on executors."""
    config = BatchQueueConfig[Any](consumer=lambda _: None)
    return loop_thread.open("somewhere", config)


def use_client_side(spark: "SparkSession", home: Path) -> dict[str, Any]:
    """Use each part that runs in the client's own process; returns what came of it."""
    from batchqueue_async.spark import (  # noqa: PLC0415
        SparkJobs,
        arrow_batches,
        push,
        whole_frame,
        write_partitions,
    )

    frame = spark.range(0, 1000, 1, 3).selectExpr("id", "timestamp_micros(id) AS at")
    columns = [[*arrow_batches(frame)], [*whole_frame(frame)]]
    handler = Keeping()
    with LoopThread() as loop_thread:
        queue = loop_thread.open("rows", BatchQueueConfig[Any](consumer=handler))
        answer = {
            "columns": [sum(batch.num_rows for batch in each) for each in columns],
            "types": [str(kind) for kind in columns[0][0].schema.types],
            "pushed": push(frame, queue),
            "handled": handler.items,
            "refused": _refused(spark, queue, home),
        }
        with SparkJobs(spark) as jobs:
            write_partitions(frame, open_somewhere)
            answer["events"] = _events(spark, queue, home)
            answer["seen"] = {each.name: each.handled for each in jobs.queue_stats()}
        handler.error = OSError("disk full")
        try:
            push(frame, queue)
        except DeliveryError as error:
            answer["failed"] = error.count
    return answer


def _refused(spark: "SparkSession", queue: SyncBatchQueue[Any], home: Path) -> str:
    from batchqueue_async.spark import ForeachBatchSink  # noqa: PLC0415

    try:
        _read(spark, home).writeStream.foreachBatch(ForeachBatchSink(queue))
    except BatchQueueError as error:
        return str(error)
    return ""


def _events(spark: "SparkSession", queue: SyncBatchQueue[Any], home: Path) -> list[str]:
    from batchqueue_async.spark import (  # noqa: PLC0415
        QueryRecord,
        QueueProgressListener,
    )

    records: list[QueryRecord] = []
    listener = QueueProgressListener(queue, records.append)
    spark.streams.addListener(listener)
    writer = _read(spark, home).writeStream.format("batchqueue").queryName("counted")
    writer = writer.option("sink", COUNTING)
    writer = writer.option("checkpointLocation", str(home / "counted"))
    writer.trigger(once=True).start().awaitTermination(60)
    until = time.monotonic() + 10
    while time.monotonic() < until and len(records) < 3:
        time.sleep(0.05)
    spark.streams.removeListener(listener)
    return [record.event for record in records]


def _read(spark: "SparkSession", home: Path) -> "DataFrame":
    return spark.readStream.schema("id BIGINT").parquet(str(home / "in"))
