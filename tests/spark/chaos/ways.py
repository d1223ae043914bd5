"""The ways from a stream into the table that the harness tests."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import asyncpg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.spark import (
    EpochWriter,
    ForeachBatchSink,
    arrow_batches,
    to_tuples,
    whole_frame,
)
from tests.spark.chaos.halts import halt
from tests.spark.chaos.sinks import HaltingEpochSink

Way = Callable[[DataFrame, str, str, str], None]
"""Runs a query until it fails: what is read, DSN, table, checkpoint."""


def naive(frame: DataFrame, dsn: str, table: str, checkpoint: str) -> None:
    """The fence per partition that loses rows: the harness must find that."""

    def write(batch: DataFrame, number: int) -> None:
        batch.foreachPartition(lambda rows: write_partition(rows, number))

    def write_partition(rows: Iterable[Row], number: int) -> None:
        context = TaskContext.get()
        assert context is not None
        key = (number, context.partitionId())
        ids = [row.id for row in rows]
        halt("before write")
        asyncio.run(_write_fenced(dsn, table, key, ids))
        halt("after commit")

    writer = frame.writeStream.foreachBatch(write)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


async def _write_fenced(
    dsn: str, table: str, key: tuple[int, int], ids: list[int]
) -> None:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS naive_fence"
            " (name TEXT, batch INT, part INT, PRIMARY KEY (name, batch, part))"
        )
        async with connection.transaction():
            done = await connection.fetchval(
                "INSERT INTO naive_fence VALUES ($1, $2, $3)"
                " ON CONFLICT DO NOTHING RETURNING 1",
                table,
                *key,
            )
            if done == 1:
                insert = f"INSERT INTO {table} SELECT unnest($1::BIGINT[])"
                await connection.execute(insert, ids)
    finally:
        await connection.close()


def foreach_batch(frame: DataFrame, dsn: str, table: str, checkpoint: str) -> None:
    """Everything through a queue in the driver's process."""
    writer = EpochWriter(HaltingEpochSink(dsn, table, ("id",)))
    with LoopThread() as loop_thread:
        queue = loop_thread.open("ids", BatchQueueConfig(consumer=writer))
        sink = ForeachBatchSink(queue, to_tuples, writer, fetch=_one_of_both(frame))
        stream = frame.writeStream.foreachBatch(sink)
        stream.option("checkpointLocation", checkpoint).start().awaitTermination()


def _one_of_both(frame: DataFrame) -> Callable[[DataFrame], Iterator[pa.RecordBatch]]:
    # Drivers' parallelisms differ, so a restart may change this, too.
    is_odd = frame.sparkSession.sparkContext.defaultParallelism % 2
    return arrow_batches if is_odd else whole_frame


def data_source(frame: DataFrame, dsn: str, table: str, checkpoint: str) -> None:
    """Staged by the executors."""
    stream = frame.writeStream.format("batchqueue")
    stream = stream.option("sink", "tests.spark.chaos.sinks:staged")
    stream = stream.option("url", dsn).option("table", table)
    stream.option("checkpointLocation", checkpoint).start().awaitTermination()


WAYS: Mapping[str, Way] = {
    "foreachBatch": foreach_batch,
    "data source": data_source,
    "naive": naive,
}
