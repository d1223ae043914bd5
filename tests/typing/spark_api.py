"""The driver's side of Spark and its sinks, as users write it.

Every public signature; checked by mypy, never run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, assert_type

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueStats,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async.sinks import Epoch, EpochSink, EpochWriter
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.spark import (
    ForeachBatchSink,
    JavaMissingError,
    PushProgress,
    QueryRecord,
    QueueProgressListener,
    SparkJobs,
    arrow_batches,
    ensure_java,
    push,
    to_batches,
    to_dicts,
    to_objects,
    to_tuples,
    use_session,
    whole_frame,
)
from batchqueue_async.telemetry import open_view


class Sale(NamedTuple):
    shop: str
    euros: float


def use(*_: object) -> None: ...


# --- a Java runtime


def java() -> None:
    try:
        ensure_java()
    except JavaMissingError as missing:
        use(missing)


# --- a frame


def a_thread(df: DataFrame) -> None:
    use_session(df.sparkSession)
    ThreadPoolExecutor(initializer=use_session, initargs=(df.sparkSession,))
    use_session(df)  # type: ignore[arg-type]


def fetching(df: DataFrame) -> None:
    for batches in (arrow_batches(df), whole_frame(df)):
        use([batch.num_rows for batch in batches])


def making_items(batch: pa.RecordBatch) -> None:
    assert_type(to_tuples(batch), Iterator[tuple[Any, ...]])
    assert_type(to_dicts(batch), Iterator[dict[str, Any]])
    use(to_batches(batch))
    make = to_objects(Sale)
    assert_type(make(batch), Iterable[Sale])
    assert_type(to_objects(len)(batch), Iterable[int])
    to_objects(3)  # type: ignore[arg-type]


def pushing(
    df: DataFrame,
    sales: SyncBatchQueue[Sale],
    tuples: SyncBatchQueue[tuple[Any, ...]],
    numbers: SyncBatchQueue[int],
) -> None:
    def on_progress(progress: PushProgress) -> None:
        assert_type(progress.rows, int)
        assert_type(progress.items, int)
        assert_type(progress.seconds, float)

    def own(batch: pa.RecordBatch) -> list[int]:
        return [int(batch.num_rows)]

    assert_type(push(df, tuples), int)
    assert_type(push(df, sales, to_items=to_objects(Sale)), int)
    push(df, numbers, to_items=own, timeout=60, on_progress=on_progress)
    push(df, tuples, fetch=whole_frame)
    push(df, numbers, to_items=to_objects(Sale))  # type: ignore[arg-type]
    push(df, numbers, own)  # type: ignore[call-arg]
    push(df, sales, on_progress=3)  # type: ignore[arg-type]


# --- epochs


def epochs(sink: EpochSink[Sale]) -> None:
    epoch = Epoch("query", 0)
    assert_type(epoch.query, str)
    assert_type(epoch.batch, int)
    epoch.batch = 1  # type: ignore[misc]
    use({epoch: 1}, epoch < Epoch(query="query", batch=1))

    writer = EpochWriter(sink)
    assert_type(writer, EpochWriter[Sale])
    assert_type(writer.epoch, Epoch | None)
    assert_type(writer.written, int)
    BatchQueueConfig(consumer=writer)
    EpochWriter(epoch)  # type: ignore[arg-type]


async def an_attempt(sink: EpochSink[Sale], epoch: Epoch) -> None:
    assert_type(await sink.is_committed(epoch), bool)
    await sink.begin(epoch)
    await sink.write(epoch, [Sale("a", 1.0)])
    await sink.write(epoch, ["a"])  # type: ignore[list-item]
    await sink.commit(epoch)
    await sink.abort(epoch)


class OwnSink:
    async def begin(self, epoch: Epoch) -> None: ...
    async def write(self, epoch: Epoch, items: list[Sale]) -> None: ...
    async def commit(self, epoch: Epoch) -> None: ...
    async def abort(self, epoch: Epoch) -> None: ...
    async def is_committed(self, epoch: Epoch) -> bool:
        return epoch.batch == 0


class NoSink:
    async def begin(self, epoch: Epoch) -> None: ...


own_sink: EpochSink[Sale] = OwnSink()
no_sink: EpochSink[Sale] = NoSink()  # type: ignore[assignment]


def sinks() -> None:
    def to_row(sale: Sale) -> list[object]:
        return [sale.shop, sale.euros]

    columns = ("shop", "euros")
    sqlite: EpochSink[Sale] = SqliteEpochSink(
        "sales.db",
        "sales",
        columns,
        to_row=to_row,
        on_conflict="ON CONFLICT DO NOTHING",
        fences="epochs",
        timeout=1.0,
    )
    postgres: EpochSink[Sale] = PostgresEpochSink(
        "postgresql://", "s.sales", columns, to_row=to_row, connections=4, timeout=1
    )
    parquet: EpochSink[Sale] = ParquetEpochSink(
        "sales", schema=pa.schema([]), to_row=to_row, row_group=10, compression="zstd"
    )
    use(sqlite, postgres, parquet)
    of_sales = SqliteEpochSink("sales.db", "sales", columns, to_row=to_row)
    assert_type(of_sales, SqliteEpochSink[Sale])
    rows = SqliteEpochSink("sales.db", "sales", columns)
    assert_type(rows, SqliteEpochSink[Any])
    copied = PostgresEpochSink("postgresql://", "s.sales", columns)
    assert_type(copied, PostgresEpochSink[Any])
    files = ParquetEpochSink("sales", schema=pa.schema([]))
    assert_type(files, ParquetEpochSink[Any])
    assert_type(EpochWriter(rows), EpochWriter[Any])


async def closing(sink: PostgresEpochSink[Sale], other: SqliteEpochSink[Any]) -> None:
    await sink.close()
    await other.close()


# --- streams


def streaming(spark: SparkSession, stream: DataFrame, loop_thread: LoopThread) -> None:
    writer = EpochWriter(SqliteEpochSink[Sale]("sales.db", "sales", ("shop", "euros")))
    queue = loop_thread.open("sales", BatchQueueConfig(consumer=writer))
    assert_type(queue, SyncBatchQueue[Sale])
    sink = ForeachBatchSink(queue, to_objects(Sale), writer)
    assert_type(sink, ForeachBatchSink[Sale])
    function: Callable[[DataFrame, int], None] = sink
    stream.writeStream.foreachBatch(function).start()
    ForeachBatchSink(queue, sink=writer, timeout=60.0, fetch=arrow_batches)
    ForeachBatchSink(queue, to_items=to_objects(len))  # type: ignore[arg-type]
    ForeachBatchSink(queue, sink="sales.db")  # type: ignore[arg-type]

    def on_record(record: QueryRecord) -> None:
        assert_type(record.event, str)
        assert_type(record.attributes, Mapping[str, str | int | float])

    spark.streams.addListener(QueueProgressListener(queue))
    spark.streams.addListener(QueueProgressListener(queue, on_record))
    with SparkJobs(spark) as jobs:
        assert_type(jobs.queue_stats(), tuple[BatchQueueStats, ...])
        open_view([queue, jobs], "queues.sock").close()
