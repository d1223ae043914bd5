"""`python -m benchmarks.spark_driver`: Spark's rows through a queue in the driver.

Each way is measured beside the same without a queue, in turns in one session, so that
the ratio is of one run; medians count. Rows have four columns (a text, a number, a
double, a timestamp with time zone). The CPU time is that of the driver's Python process
alone. Prints the rows that the guide shows, and which goals it reached.
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
from benchmarks.spark_goals import (
    ARROW,
    DRIVER,
    FOREACH_BATCHES,
    FOREACH_TUPLES,
    PUSH_BATCHES,
    PUSH_TUPLES,
    RATE,
    SHARE,
    reached,
)
from benchmarks.spark_setup import frame_of, session
from benchmarks.spark_streams import Function, Streams
from benchmarks.table import Column, Table, show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TUPLES = "tuples without a queue"
WHOLE = "foreachBatch, whole_frame"
WHOLE_TUPLES = "foreachBatch, tuples without a queue"
BESIDE = {
    PUSH_BATCHES: ARROW,
    PUSH_TUPLES: TUPLES,
    FOREACH_BATCHES: WHOLE,
    FOREACH_TUPLES: WHOLE_TUPLES,
}
Run = Callable[[], int]


async def handle(batch: list[Any]) -> None:
    """Take a batch and do nothing: the queue's cost alone is seen."""


def ways(df: DataFrame, queue: SyncBatchQueue[Any]) -> dict[str, Run]:
    """Return what is measured for a batch frame, each without and with the queue."""
    return {
        "toLocalIterator": lambda: sum(1 for _ in df.limit(100_000).toLocalIterator()),
        "toArrow": lambda: int(df.toArrow().num_rows),
        "whole_frame": lambda: sum(batch.num_rows for batch in whole_frame(df)),
        ARROW: lambda: sum(batch.num_rows for batch in arrow_batches(df)),
        PUSH_BATCHES: lambda: _pushed(df, queue),
        TUPLES: lambda: sum(map(len, _tuples(df))),
        PUSH_TUPLES: lambda: push(df, queue, to_items=to_tuples),
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


def stream_ways(queue: SyncBatchQueue[Any]) -> dict[str, Function]:
    """Return what is measured for a stream, without and with the queue."""
    return {
        WHOLE: lambda df, _: [*whole_frame(df)],
        FOREACH_BATCHES: ForeachBatchSink(queue, to_batches),
        WHOLE_TUPLES: lambda df, _: [
            list(to_tuples(batch)) for batch in whole_frame(df)
        ],
        FOREACH_TUPLES: ForeachBatchSink(queue),
    }


@dataclass(frozen=True)
class Measured:
    """Medians of the rounds: rows per second, and CPU seconds per row."""

    rate: float
    cpu: float


def measure(rows: int, rounds: int, *, with_streams: bool) -> dict[str, Measured]:
    """Return what every way takes."""
    samples: defaultdict[str, list[Measured]] = defaultdict(list)
    with (
        session("local[2]", spark__driver__memory="3g") as spark,
        LoopThread() as loop_thread,
        tempfile.TemporaryDirectory() as folder,
    ):
        queue = loop_thread.open("rows", BatchQueueConfig[Any](consumer=handle))
        df, streams = frame_of(spark, rows, 8), Streams(spark, rows // 2, Path(folder))
        # The first round warms Spark up.
        for number in range(rounds + 1):
            found = {name: _timed(run) for name, run in ways(df, queue).items()}
            for name, function in stream_ways(queue).items() if with_streams else ():
                took = streams.foreach_batch(function)
                found[name] = _median(
                    [Measured(streams.rows / s, cpu / streams.rows) for s, cpu in took]
                )
            for name, sample in found.items() if number else ():
                samples[name].append(sample)
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


def table_of(measured: dict[str, Measured], rows: int, rounds: int) -> Table:
    """Return the rows that the guide shows."""
    table = Table(
        "driver",
        f"In the driver, {rows:,} rows, medians of {rounds}, in turns",
        [
            Column("way"),
            Column(RATE, "millions"),
            Column(SHARE, "percent"),
            Column("CPU ms per million rows", "count"),
        ],
    )
    for name, each in measured.items():
        beside = measured.get(BESIDE.get(name, ""))
        share = each.rate / beside.rate if beside else None
        table.add(name, each.rate, share, each.cpu * 1e9)
    return table


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="spark_driver", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-streams", action="store_true", help="frames only")
    options = parser.parse_args()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    print(", ".join(machine.describe().values()))
    measured = measure(
        options.rows, options.rounds, with_streams=not options.no_streams
    )
    table = table_of(measured, options.rows, options.rounds)
    show(table)
    show(reached(DRIVER, [table]))


if __name__ == "__main__":
    main()
