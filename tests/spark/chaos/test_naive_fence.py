"""A crash after the first partition, and a restart with another parallelism."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.sinks import Epoch, EpochWriter
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from batchqueue_async.spark import ForeachBatchSink, arrow_batches, to_tuples
from tests.spark.chaos.naive_fence import Crash, NaiveFence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_time,
    pytest.mark.slow,
    pytest.mark.timeout(120),
]

FILES, ROWS_PER_FILE = 4, 300
RATE_ROWS = 120

CUT = "spark.sql.files.minPartitionNum"
"""The session's number of cores only is the default of this setting."""

Write = Callable[["DataFrame", int], None]
Source = Callable[["SparkSession", Path, int], "DataFrame"]


@pytest.fixture(autouse=True)
def _others_cut_as_before(spark: "SparkSession") -> Iterator[None]:
    yield
    spark.conf.unset(CUT)


def read_files(spark: "SparkSession", home: Path, parallelism: int) -> "DataFrame":
    """One micro-batch of four files, cut as local[parallelism] would cut it."""
    folder = home / "files"
    if not folder.exists():
        folder.mkdir()
        for n in range(FILES):
            ids = range(n * ROWS_PER_FILE, (n + 1) * ROWS_PER_FILE)
            pq.write_table(pa.table({"id": list(ids)}), folder / f"{n}.parquet")
    spark.conf.set(CUT, parallelism)
    stream: DataStreamReader = spark.readStream.schema("id long")
    return stream.option("maxFilesPerTrigger", FILES).parquet(str(folder))


def read_rate(spark: "SparkSession", home: Path, parallelism: int) -> "DataFrame":
    stream = spark.readStream.format("rate-micro-batch")
    stream = stream.option("rowsPerBatch", RATE_ROWS)
    stream = stream.option("numPartitions", parallelism)
    return stream.load().selectExpr("value AS id")


def run_once(frame: "DataFrame", checkpoint: Path, write: Write) -> None:
    """Deliver the stream's next micro-batch, or its last one again."""

    def write_first(batch: "DataFrame", number: int) -> None:
        if number == 0:
            write(batch, number)

    query = (
        frame.writeStream.foreachBatch(write_first)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def count(ids: Iterable[int], expected: int) -> tuple[int, int]:
    """How many of the expected are lost, and how many rows are too many."""
    found = Counter(ids)
    assert set(found) <= set(range(expected))
    return expected - len(found), found.total() - len(found)


@dataclass(frozen=True)
class Restart:
    """A source, its number of rows, and the parallelism around a crash."""

    read: Source
    rows: int
    before: int
    after: int


FILES_5_TO_2 = Restart(read_files, FILES * ROWS_PER_FILE, 5, 2)
FILES_2_TO_5 = Restart(read_files, FILES * ROWS_PER_FILE, 2, 5)
RATE_2_TO_5 = Restart(read_rate, RATE_ROWS, 2, 5)


@pytest.mark.parametrize(
    "restart, lost, doubled",
    [
        pytest.param(FILES_5_TO_2, 300, 0, id="files, 5 to 2 cores"),
        pytest.param(FILES_2_TO_5, 0, 300, id="files, 2 to 5 cores"),
        pytest.param(
            RATE_2_TO_5, 12, 48, id="rate, 2 to 5 cores", marks=pytest.mark.slow
        ),
    ],
)
def test_a_fence_per_partition_loses_and_doubles_rows(
    spark: "SparkSession", tmp_path: Path, restart: Restart, lost: int, doubled: int
) -> None:
    fence = NaiveFence(tmp_path / "items.sqlite")
    fence.create()
    checkpoint = tmp_path / "checkpoint"
    frame = restart.read(spark, tmp_path, restart.before)
    with pytest.raises(StreamingQueryException, match="Crash"):
        run_once(frame, checkpoint, partial(fence.write, crash=True))
    frame = restart.read(spark, tmp_path, restart.after)
    run_once(frame, checkpoint, partial(fence.write, crash=False))
    assert count(fence.ids(), restart.rows) == (lost, doubled)


class DyingSink(SqliteEpochSink[tuple[int]]):
    """Dies with its process when the first rows are written: nothing tidies up."""

    async def write(self, epoch: Epoch, items: list[tuple[int]]) -> None:
        await super().write(epoch, items)
        raise Crash

    async def abort(self, epoch: Epoch) -> None:
        pass


@pytest.mark.parametrize(
    "restart",
    [
        pytest.param(FILES_5_TO_2, id="files, 5 to 2 cores", marks=pytest.mark.slow),
        pytest.param(FILES_2_TO_5, id="files, 2 to 5 cores"),
        pytest.param(RATE_2_TO_5, id="rate, 2 to 5 cores", marks=pytest.mark.slow),
    ],
)
def test_a_fence_per_epoch_keeps_them(
    spark: "SparkSession", tmp_path: Path, restart: Restart
) -> None:
    database = tmp_path / "items.sqlite"
    NaiveFence(database).create()  # for the table
    checkpoint = tmp_path / "checkpoint"
    frame = restart.read(spark, tmp_path, restart.before)
    with pytest.raises(StreamingQueryException, match="Crash"):
        run_through_queue(frame, checkpoint, DyingSink(database, "items", ["id"]))
    frame = restart.read(spark, tmp_path, restart.after)
    run_through_queue(frame, checkpoint, SqliteEpochSink(database, "items", ["id"]))
    assert count(NaiveFence(database).ids(), restart.rows) == (0, 0)


def run_through_queue(
    frame: "DataFrame", checkpoint: Path, sink: SqliteEpochSink[tuple[int]]
) -> None:
    writer = EpochWriter(sink)
    with LoopThread() as loop_thread:
        queue = loop_thread.open("items", BatchQueueConfig(consumer=writer))
        write = ForeachBatchSink(queue, to_tuples, writer, fetch=arrow_batches)
        run_once(frame, checkpoint, write)
