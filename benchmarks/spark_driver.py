"""`python -m benchmarks.spark_driver`: Spark's rows through a queue in the driver.

Each way is measured beside the same without a queue, in turns in one session, so that
the ratio is of one run. Rows have four columns (a text, a number, a double, a timestamp
with time zone). The CPU time is that of the driver's Python process alone, and says
what a way costs on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async.spark import (
    ForeachBatchSink,
    arrow_batches,
    push,
    to_batches,
    to_tuples,
    whole_frame,
)
from benchmarks import machine
from examples.spark_session import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    "'name ' || id AS name",
    "id",
    "id / 3 AS third",
    "timestamp_micros(id * 1000) AS at",
)
Run = Callable[[], int]


def frame(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    """Return rows of four columns."""
    return spark.range(0, rows, 1, partitions).selectExpr(*_COLUMNS)


async def handle(batch: list[Any]) -> None:
    """Take a batch and do nothing: the queue's cost alone is seen."""


def ways(df: DataFrame, queue: SyncBatchQueue[Any]) -> dict[str, Run]:
    """Return what is measured for a batch frame, each without and with the queue."""
    return {
        "toLocalIterator": lambda: sum(1 for _ in df.limit(100_000).toLocalIterator()),
        "toArrow": lambda: int(df.toArrow().num_rows),
        "whole_frame": lambda: sum(batch.num_rows for batch in whole_frame(df)),
        "arrow_batches": lambda: sum(batch.num_rows for batch in arrow_batches(df)),
        "push of record batches": lambda: _pushed(df, queue),
        "tuples without a queue": lambda: sum(map(len, _tuples(df))),
        "push of tuples": lambda: push(df, queue, to_items=to_tuples),
    }


def _pushed(df: DataFrame, queue: SyncBatchQueue[Any]) -> int:
    rows = [0]
    push(
        df,
        queue,
        to_items=to_batches,
        on_progress=lambda progress: rows.__setitem__(0, progress.rows),
    )
    return rows[0]


def _tuples(df: DataFrame) -> Iterator[list[tuple[Any, ...]]]:
    return (list(to_tuples(batch)) for batch in arrow_batches(df))


class Streams:
    """Measures `foreachBatch`, by the time of its own calls."""

    def __init__(self, spark: SparkSession, rows: int, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._files = folder / "files"
        self._schema = frame(spark, 1, 1).schema
        self._rows = rows
        # Files of one size: every micro-batch is one of them.
        for number in range(3):
            path = self._files / f"{number}"
            frame(spark, rows, 1).coalesce(1).write.parquet(str(path))

    def measure(self, function: Callable[[DataFrame, int], object]) -> Measured:
        """Return the median of the micro-batches but the first."""
        samples: list[Measured] = []

        def timed(df: DataFrame, batch: int) -> None:
            def run() -> int:
                function(df, batch)
                return self._rows

            samples.append(_timed(run))

        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            query = (
                self._spark.readStream.schema(self._schema)
                .option("maxFilesPerTrigger", 1)
                .parquet(f"{self._files}/*")
                .writeStream.foreachBatch(timed)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        return _median(samples[1:])


def stream_ways(
    queue: SyncBatchQueue[Any],
) -> dict[str, Callable[[DataFrame, int], object]]:
    """Return what is measured for a stream, without and with the queue."""
    return {
        "foreachBatch, whole_frame": lambda df, _: [*whole_frame(df)],
        "ForeachBatchSink of record batches": ForeachBatchSink(queue, to_batches),
        "foreachBatch, tuples without a queue": lambda df, _: [
            list(to_tuples(batch)) for batch in whole_frame(df)
        ],
        "ForeachBatchSink of tuples": ForeachBatchSink(queue),
    }


@dataclass(frozen=True)
class Measured:
    """Medians of the rounds: rows per second, and CPU seconds per row."""

    rate: float
    cpu: float


def measure(rows: int, rounds: int, *, with_streams: bool) -> dict[str, Measured]:
    """Return what every way takes."""
    samples: defaultdict[str, list[Measured]] = defaultdict(list)
    spark = quiet_session("benchmark", "local[2]")
    with LoopThread() as loop_thread, tempfile.TemporaryDirectory() as folder:
        queue = loop_thread.open("rows", BatchQueueConfig[Any](consumer=handle))
        df, streams = frame(spark, rows, 8), Streams(spark, rows // 2, Path(folder))
        # The first round warms Spark up.
        for number in range(rounds + 1):
            found = {name: _timed(run) for name, run in ways(df, queue).items()}
            for name, function in stream_ways(queue).items() if with_streams else ():
                found[name] = streams.measure(function)
            for name, sample in found.items() if number else ():
                samples[name].append(sample)
    spark.stop()
    return {name: _median(each) for name, each in samples.items()}


def _timed(run: Run) -> Measured:
    started, cpu = time.perf_counter(), time.process_time()
    rows = run()
    seconds = time.perf_counter() - started
    return Measured(rows / seconds, (time.process_time() - cpu) / rows)


def _median(samples: list[Measured]) -> Measured:
    return Measured(
        statistics.median(each.rate for each in samples),
        statistics.median(each.cpu for each in samples),
    )


BESIDE = {
    "push of record batches": "arrow_batches",
    "push of tuples": "tuples without a queue",
    "ForeachBatchSink of record batches": "foreachBatch, whole_frame",
    "ForeachBatchSink of tuples": "foreachBatch, tuples without a queue",
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="spark_driver", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-streams", action="store_true", help="frames only")
    options = parser.parse_args()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    print(", ".join(machine.describe().values()))
    print(f"{options.rows:,} rows, medians of {options.rounds}, in turns\n")
    measured = measure(
        options.rows, options.rounds, with_streams=not options.no_streams
    )
    print("| way | million rows/s | of the same without a queue | CPU s per million |")
    print("| --- | --- | --- | --- |")
    for name, each in measured.items():
        beside = measured.get(BESIDE.get(name, ""))
        ratio = f"{each.rate / beside.rate:.0%}" if beside else ""
        print(f"| {name} | {each.rate / 1e6:.2f} | {ratio} | {each.cpu * 1e6:.2f} |")


if __name__ == "__main__":
    main()
