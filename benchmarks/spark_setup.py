"""Sessions, frames and queues for the benchmarks of `batchqueue_async.spark`."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async.spark import ensure_java
from benchmarks.turns import Measure
from examples.spark_session import LOGGING, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTING = "batchqueue_async.sinks.counting_staged:CountingStagedSink.from_options"
QUIET = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
COLUMNS = (
    "'name ' || id AS name",
    "id",
    "id / 3 AS third",
    "timestamp_micros(id * 1000) AS at",
)


@dataclass(frozen=True)
class OpenSlowQueue:
    """An `open_queue` whose handler takes `seconds` for each of its batches."""

    seconds: float = 0.0
    max_batch: int | None = None

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[Any]:
        """Open it; without `seconds` its handler does nothing at all."""
        import asyncio  # noqa: PLC0415  # on executors

        async def consume(_: list[Any]) -> None:
            if self.seconds:
                await asyncio.sleep(self.seconds)

        config = BatchQueueConfig[Any](
            consumer=consume, buffer_size=8, max_batch=self.max_batch
        )
        return loop_thread.open("benchmark", config)


@contextmanager
def session(master: str, **settings: str) -> "Iterator[SparkSession]":
    """A session with these settings, dots written as two underscores."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # slow

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("benchmark").master(master)
    named = {name.replace("__", "."): value for name, value in settings.items()}
    # Not the demo's JVM options: those leave out the JVM's optimizing compiler.
    lasting = {**SETTINGS, "spark.driver.extraJavaOptions": QUIET}
    for name, value in {**lasting, **named}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def frame_of(
    spark: "SparkSession", rows: int, partitions: int, *, is_cached: bool = False
) -> "DataFrame":
    """Four columns: a text, a number, a double, a timestamp with time zone."""
    frame = spark.range(0, rows, 1, partitions).selectExpr(*COLUMNS)
    if is_cached:
        frame.cache().count()
    return frame


def rate(rows: int, work: Callable[[], object]) -> Measure:
    """What measures rows per second."""

    def measure() -> float:
        started = time.perf_counter()
        work()
        return rows / (time.perf_counter() - started)

    return measure


def save(frame: "DataFrame", **options: str) -> None:
    """Write it through the data source, into a sink that counts."""
    write = frame.write.format("batchqueue").option("sink", COUNTING)
    write.options(**options).mode("append").save()
