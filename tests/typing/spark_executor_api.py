"""The executor side of `batchqueue_async.spark`, as users write it; checked by mypy.

Never run. `type: ignore` with a code pins what is refused.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, assert_type

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from batchqueue_async import (
    BatchQueueConfig,
    DeliveryError,
    LoopThread,
    Retry,
    SyncBatchQueue,
)
from batchqueue_async.sinks.counting_staged import CountingStagedSink
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from batchqueue_async.spark import (
    Attempt,
    BatchQueueSource,
    CallCounts,
    Emit,
    Epoch,
    OpenEmittingQueue,
    OpenQueue,
    PartitionResult,
    PartitionsFailed,
    StagedRowsMissing,
    StagedSink,
    Token,
    WriteResult,
    call_counts,
    close_executor_queues,
    executor_queue,
    flushed_queue,
    idempotency_key,
    map_async,
    map_partitions_with_queue,
    to_batches,
    to_tuples,
    write_partitions,
)


def open_words(loop_thread: LoopThread) -> SyncBatchQueue[str]:
    config = BatchQueueConfig[str](buffer_size=100)
    return loop_thread.open("words", config, handlers={str: print})


def words(batch: pa.RecordBatch) -> Iterator[str]:
    yield from batch.column(0).to_pylist()


def the_queue_of_a_process() -> None:
    opener: OpenQueue[str] = open_words
    assert_type(executor_queue(opener), SyncBatchQueue[str])
    assert_type(executor_queue(open_words), SyncBatchQueue[str])
    with flushed_queue(open_words, timeout=10.0) as queue:
        assert_type(queue, SyncBatchQueue[str])
    close_executor_queues()
    executor_queue(print)  # type: ignore[arg-type]


def partitions(df: DataFrame) -> None:
    assert_type(write_partitions(df, open_words, to_items=words), WriteResult)
    try:
        result = write_partitions(df, open_words, to_items=words, timeout=60)
    except PartitionsFailed as error:
        assert_type(error.result, WriteResult)
        failure: DeliveryError = error
        assert_type(failure.count, int)
    else:
        assert_type(result.rows, int)
        assert_type(result.items, int)
        assert_type(result.failed, int)
        assert_type(result.partitions, tuple[PartitionResult, ...])
        assert_type(result.partitions[0].failures, tuple[str, ...])
    write_partitions(df, lambda thread: thread.open("any"), to_items=to_batches)
    write_partitions(df, lambda thread: thread.open("any"), to_items=to_tuples)
    write_partitions(df, open_words, words)  # type: ignore[call-arg]


def open_lengths(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[str]:
    async def consume(batch: list[str]) -> None:
        for word in batch:
            emit((word, len(word)))
            await emit({"word": word, "length": len(word)})
        emit.many((word, len(word)) for word in batch)
        await emit.many([])

    return loop_thread.open("lengths", BatchQueueConfig[str](consumer=consume))


def queues_inside_of_a_frame(df: DataFrame) -> None:
    opener: OpenEmittingQueue[str] = open_lengths
    schema = "word STRING, length INT"
    made = map_partitions_with_queue(df, opener, schema, to_items=words)
    assert_type(made, DataFrame)
    map_partitions_with_queue(made, open_lengths, made.schema, to_items=words)
    map_partitions_with_queue(df, open_words, schema)  # type: ignore[arg-type]
    map_partitions_with_queue(df, open_lengths)  # type: ignore[call-arg]


@asynccontextmanager
async def a_client() -> AsyncIterator[str]:
    yield "client"


async def ask(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return batch


async def ask_with(client: str, batch: list[tuple[Any, ...]]) -> list[tuple[str]]:
    return [(client,) for _ in batch]


def calls(df: DataFrame) -> None:
    made = map_async(df, ask, "id BIGINT")
    assert_type(made, DataFrame)
    map_async(df, ask, StructType(), on_error="column", error_column="why")
    map_async(
        df,
        ask_with,
        "client STRING",
        open=a_client,
        to_items=to_tuples,
        max_batch=10,
        linger=0.5,
        in_flight=32,
        ordered=True,
        reorder_buffer=100,
        timeout=5,
        retry=Retry(attempts=3),
        rate=10,
        flat=False,
    )
    counts = call_counts(made)
    assert_type(counts, CallCounts)
    assert_type((counts.calls, counts.items), tuple[int, int])
    assert_type((counts.retried, counts.failed), tuple[int, int])
    assert_type(idempotency_key({"id": 1}, salt="charge"), str)
    map_async(df, ask, "id BIGINT", on_error="ignore")  # type: ignore[arg-type]
    map_async(df, print, "id BIGINT")  # type: ignore[arg-type]


def make_sink(options: Mapping[str, str]) -> StagedSink[pa.RecordBatch]:
    if "url" in options:
        return PostgresStagedSink.from_options(options)
    if "directory" in options:
        return ParquetStagedSink(options["directory"], row_group=1000)
    if "file" in options:
        return SqliteStagedSink(options["file"], "items", nan_as_null=True)
    return CountingStagedSink(delay=0.1)


def the_data_source(spark: SparkSession) -> None:
    spark.dataSource.register(BatchQueueSource)


async def a_sink(sink: StagedSink[Any]) -> None:
    epoch = Epoch("query", 1)
    attempt = Attempt(epoch, run="run", partition=0, name="name")
    await sink.stage(attempt, [pa.record_batch({"id": [1]})])
    token = await sink.seal(attempt)
    assert_type(token, Token)
    try:
        assert_type(await sink.publish(epoch, [token]), bool)
    except StagedRowsMissing as error:
        assert_type(error.found, int)
        await sink.discard(epoch, "run")
    await sink.abandon(attempt)
    assert_type(await sink.is_published(epoch), bool)
    await sink.close()
