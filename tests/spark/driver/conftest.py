"""A loop thread, a stream of files, and queries that end when their files do."""

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import LoopThread
from batchqueue_async.sinks import EpochWriter
from batchqueue_async.sinks.sqlite import SqliteEpochSink


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    with LoopThread(shutdown_timeout=5) as running:
        yield running


class Table:
    """A table of a SQLite file, and its sink."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE items (id INTEGER)")
        self.writer = EpochWriter(SqliteEpochSink[Any](path, "items", ("id",)))

    def ids(self) -> list[int]:
        with closing(sqlite3.connect(self.path)) as database:
            rows = database.execute("SELECT id FROM items ORDER BY id")
            return [number for (number,) in rows]


class Stream:
    """A directory of files, and a query that reads one of them per micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._files = folder / "files"
        self._files.mkdir()
        self.checkpoint = folder / "checkpoint"

    def add(self, ids: Sequence[int]) -> None:
        """Add a file, which is a micro-batch."""
        number = len(list(self._files.iterdir()))
        table = pa.table({"id": pa.array(ids, pa.int64())})
        # The names are in the order of their age, which is what Spark goes by.
        pq.write_table(table, self._files / f"{number:03d}.parquet")

    def run(self, sink: Callable[[DataFrame, int], None], partitions: int = 2) -> None:
        """Run the query until it has read everything, or has failed."""
        query = (
            self._spark.readStream.schema("id LONG")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._files))
            .repartition(partitions)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_commit(self, batch: int) -> None:
        """Make it look as if the driver had died just before Spark's own commit."""
        self._forget(batch, "commits")

    def forget_plan(self, batch: int) -> None:
        """Make the checkpoint that of before the batch was planned."""
        self._forget(batch, "commits", "offsets")

    def _forget(self, batch: int, *logs: str) -> None:
        for log in logs:
            for name in (f"{batch}", f".{batch}.crc"):
                (self.checkpoint / log / name).unlink(missing_ok=True)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    # A query that fails is told by its exception; the log says it once more.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return Stream(spark, tmp_path)


class Collector:
    """A handler that keeps what it got, and fails when it is told to."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.batches = 0
        self.error: Exception | None = None

    async def consume(self, batch: list[Any]) -> None:
        self.batches += 1
        if self.error is not None:
            raise self.error
        self.items.extend(batch)


@pytest.fixture
def collector() -> Collector:
    return Collector()
