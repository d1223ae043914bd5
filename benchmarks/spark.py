"""Rows per second on executors: python -m benchmarks.spark [--quick].

First on one machine's cores: what the queue costs beside what one would write by hand.
Then on a standalone cluster of one and of two executors with one core each, with a sink
that takes time: whether two do twice as much. Takes about two minutes.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async.spark.items import to_batches
from batchqueue_async.spark.write_partitions import write_partitions
from benchmarks.spark_cpu import cpu_seconds
from benchmarks.spark_peer import RESULT, into_bare_queue
from benchmarks.table import Column, Table, show
from benchmarks.turns import Measure, Turns
from examples.java_runtime import ensure_java
from examples.spark_session import SETTINGS
from tests.support.cluster import running_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTING = "batchqueue_async.sinks.counting_staged:CountingStagedSink.from_options"
COLUMNS = ("id", "CAST(id AS STRING) AS s", "id * 1.5D AS d", "timestamp_micros(id) t")
# Of a sink on a network, for a record batch of 1,000 rows.
SINK_TAKES = 0.02
BATCH_ROWS = "1000"


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
    builder = SparkSession.builder.appName("benchmark").master(master)
    named = {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in {**SETTINGS, **named}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def frame_of(spark: "SparkSession", rows: int, partitions: int) -> "DataFrame":
    """Four columns in memory."""
    frame = spark.range(0, rows, 1, partitions).selectExpr(*COLUMNS).cache()
    frame.count()
    return frame


def rate(rows: int, work: Callable[[], object]) -> Measure:
    """What measures rows per second."""

    def measure() -> float:
        started = time.perf_counter()
        work()
        return rows / (time.perf_counter() - started)

    return measure


def save(frame: "DataFrame", **options: str) -> None:
    """Write it through the data source."""
    write = frame.write.format("batchqueue").option("sink", COUNTING)
    write.options(**options).mode("append").save()


def on_one_machine(turns: Turns, rows: int) -> Table:
    """The queue and the data source beside a queue that is written by hand."""
    with session("local[2]") as spark:
        frame = frame_of(spark, rows, 8)
        measures: Mapping[str, Measure] = {
            "mapInArrow into an asyncio.Queue": rate(
                rows, lambda: frame.mapInArrow(into_bare_queue, RESULT).collect()
            ),
            "write_partitions": rate(
                rows,
                lambda: write_partitions(frame, OpenSlowQueue(), to_items=to_batches),
            ),
            'format("batchqueue"), a sink that counts': rate(rows, lambda: save(frame)),
        }
        samples = turns.take(measures)
        costs = {name: _cost(measure) for name, measure in measures.items()}
    first = "mapInArrow into an asyncio.Queue"
    table = Table(
        "spark",
        f"On 2 cores, {rows:,} rows of 4 columns",
        [
            Column("way"),
            Column("rows/s, of the first", "percent"),
            Column("rows per CPU second, of the first", "percent"),
            Column("million rows/s", "millions"),
            Column("CPU ms", "millis"),
        ],
    )
    for name, sample in samples.items():
        cost, speed = costs[name], sample.median
        ratio = speed / samples[first].median
        table.add(name, ratio, costs[first] / cost, speed, cost)
    return table


def _cost(measure: Measure) -> float:
    """CPU seconds of one job; the median of three."""
    found = []
    for _ in range(3):
        before = cpu_seconds()
        measure()
        found.append(cpu_seconds() - before)
    return statistics.median(found)


def scaling(turns: Turns, rows: int) -> Table:
    """One executor and two, each with one core and one connection to a slow sink."""
    found: dict[int, dict[str, float]] = {}
    for executors in (1, 2):
        with (
            running_cluster(workers=executors, cores=1) as cluster,
            session(
                cluster.url,
                spark__executor__memory="500m",
                # No task before all executors are there, and none waits for a certain
                # one: otherwise the first does all the work of so short a job.
                spark__scheduler__minRegisteredResourcesRatio="1.0",
                spark__scheduler__maxRegisteredResourcesWaitingTime="60s",
                spark__locality__wait="0s",
                spark__sql__execution__arrow__maxRecordsPerBatch=BATCH_ROWS,
            ) as spark,
        ):
            frame = spark.range(0, rows, 1, 4).selectExpr(*COLUMNS)
            queue = OpenSlowQueue(SINK_TAKES, max_batch=1)
            samples = turns.take(
                {
                    "write_partitions": rate(
                        rows,
                        lambda f=frame, q=queue: write_partitions(  # type: ignore[misc]
                            f, q, to_items=to_batches
                        ),
                    ),
                    'format("batchqueue")': rate(
                        rows,
                        lambda f=frame: save(f, delay=str(SINK_TAKES * 8)),  # type: ignore[misc]
                    ),
                }
            )
        found[executors] = {name: each.median for name, each in samples.items()}
    table = Table(
        "spark executors",
        "A sink that takes time, executors of a standalone cluster with one core each",
        [
            Column("way"),
            Column("2 beside 1", "times"),
            Column("1 executor, million rows/s", "millions"),
            Column("2 executors", "millions"),
        ],
    )
    for name, one in found[1].items():
        two = found[2][name]
        table.add(name, two / one, one, two)
    return table


def main() -> None:
    """Measure and print; ratios come first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch")
    parser.add_argument("--no-cluster", action="store_true", help="one machine only")
    arguments = parser.parse_args()
    is_quick = arguments.quick
    turns = Turns(2 if is_quick else 5, is_quick=False)
    show(on_one_machine(turns, 1_000_000 if is_quick else 4_000_000))
    if not arguments.no_cluster:
        show(scaling(turns, 400_000))


if __name__ == "__main__":
    main()
