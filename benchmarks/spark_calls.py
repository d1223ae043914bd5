"""Calls inside of a frame: python -m benchmarks.spark_calls [--quick] [--only http].

`map_async` beside what people write today, on two Python worker processes: over HTTP
with a local service (20 ms away, 1 % errors, 1 % 429s), and with a call that only
sleeps, where the ideal is known. All contenders take turns; ratios come from the same
turn. Prints the rows that the guide shows, and a worker's memory over a million rows.
"""

import argparse
import asyncio
import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchqueue_async.spark import map_async
from benchmarks import machine
from benchmarks.call_service import LATENCY, running_service
from benchmarks.report import said
from benchmarks.spark_calls_http import (
    BATCH_ROWS,
    GATHER,
    OURS,
    PROCESSES,
    RESULT,
    SIZE,
    UNORDERED,
    Frame,
    HttpWays,
    by_a_udf,
    over_http,
    seconds,
    summed,
)
from benchmarks.spark_calls_peers import by_gather
from benchmarks.spark_setup import session
from benchmarks.table import Column, Table, show
from benchmarks.turns import Measure, Turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANY = 32
Make = Callable[["DataFrame"], "DataFrame"]


async def sleeping(batch: list[dict[str, Any]]) -> list[tuple[int]]:
    """A call that only takes time."""
    await asyncio.sleep(LATENCY)
    return [(2 * item["id"],) for item in batch]


async def sleeping_numbers(numbers: list[int]) -> list[int]:
    """The same for contenders that have plain numbers."""
    await asyncio.sleep(LATENCY)
    return [2 * number for number in numbers]


async def sometimes_long(batch: list[dict[str, Any]]) -> list[tuple[int]]:
    """One call in a hundred takes ten times as long."""
    is_long = batch[0]["id"] // SIZE % 100 == 50  # noqa: PLR2004
    await asyncio.sleep(LATENCY * (10 if is_long else 1))
    return [(2 * item["id"],) for item in batch]


async def sometimes_long_numbers(numbers: list[int]) -> list[int]:
    """The same for contenders that have plain numbers."""
    is_long = numbers[0] // SIZE % 100 == 50  # noqa: PLR2004
    await asyncio.sleep(LATENCY * (10 if is_long else 1))
    return [2 * number for number in numbers]


async def memory(batch: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Tell how much this process has, in kilobytes, while it is called."""
    await asyncio.sleep(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])  # noqa: ASYNC240
    kilobytes = pages * os.sysconf("SC_PAGE_SIZE") // 1024
    return [(item["id"], kilobytes) for item in batch]


def only_sleeping(frame: Frame, rows: int, turns: Turns) -> Table:
    """Measure how much of the ideal there is once everything runs."""
    table = Table(
        "sleep",
        "A call that only sleeps: of the ideal, in the steady state (a large job less a"
        " small one)",
        [Column("way"), *(Column(f"in_flight {n}", "percent") for n in (8, 32))],
    )
    found: dict[str, list[float]] = {}
    for at_once in (8, 32):
        ways = {
            OURS: _calls(sleeping, at_once),
            UNORDERED: _calls(sleeping, at_once, ordered=False),
            GATHER: _gathers(sleeping_numbers, at_once),
        }
        measures = {
            name: _share(make, frame, rows * at_once // 8, at_once)
            for name, make in ways.items()
        }
        for name, sample in turns.take(measures, warm_up=False).items():
            found.setdefault(name, []).append(sample.median)
    for name, shares in found.items():
        table.add(name, *shares)
    return table


def with_slow_ones(frame: Frame, rows: int, turns: Turns) -> Table:
    """Measure where one call in a hundred takes ten times as long."""
    samples = turns.take(
        {
            name: _rate(rows, partial(_all_of, make, frame, rows))
            for name, make in (
                (UNORDERED, _calls(sometimes_long, _MANY, ordered=False)),
                (OURS, _calls(sometimes_long, _MANY)),
                (GATHER, _gathers(sometimes_long_numbers, _MANY)),
            )
        },
        warm_up=False,
    )
    table = Table(
        "slow",
        f"One call in a hundred takes ten times as long; {_MANY} at a time, record"
        f" batches of {BATCH_ROWS:,} rows",
        [Column("way"), Column("rows/s", "count"), Column(f"of {GATHER}", "times")],
    )
    for name, sample in samples.items():
        table.add(name, sample.median, sample.beside(samples[GATHER]))
    return table


def memory_of(frame: Frame, rows: int) -> Table:
    """Measure a worker process's memory while it goes through a million rows."""
    made = map_async(frame(rows), memory, "id BIGINT, kb BIGINT", in_flight=8)
    tenths = made.selectExpr(f"id % {rows // 2} DIV {rows // 20} AS tenth", "kb")
    found = tenths.groupBy("tenth").agg({"kb": "max"}).orderBy("tenth").collect()
    table = Table(
        "memory",
        f"Memory of the largest worker process, in tenths of {rows:,} rows",
        [Column("tenth"), Column("MB", "count")],
    )
    for tenth, kilobytes in found:
        table.add(f"{tenth + 1}", kilobytes / 1024)
    return table


def _calls(
    call: Any,  # noqa: ANN401 - either kind
    at_once: int,
    *,
    ordered: bool = True,
) -> Make:
    return lambda frame: map_async(
        frame, call, RESULT, max_batch=SIZE, in_flight=at_once, ordered=ordered
    )


def _gathers(
    work: Any,  # noqa: ANN401 - either kind
    at_once: int,
) -> Make:
    run = by_gather(SIZE, at_once, work=work)
    return lambda frame: frame.mapInArrow(run, RESULT)


def _all_of(make: Make, frame: Frame, rows: int) -> object:
    return summed(make(frame(rows)))


def _share(make: Make, frame: Frame, rows: int, at_once: int) -> Measure:
    """What measures the share of the ideal between a quarter of the rows and all."""
    ideal = 0.75 * rows / SIZE * LATENCY / at_once / PROCESSES

    def measure() -> float:
        few = seconds(partial(_all_of, make, frame, rows // 4))
        return ideal / (seconds(partial(_all_of, make, frame, rows)) - few)

    return measure


def _rate(rows: int, work: Callable[[], object]) -> Measure:
    return lambda: rows / seconds(work)


def frames(spark: "SparkSession") -> Frame:
    """Return what makes frames of numbers, in as many partitions as processes."""
    return lambda rows: spark.range(0, rows, 1, PROCESSES)


def http(frame: Frame, rows: int, turns: Turns) -> None:
    """Measure over HTTP, beside processes that have no Spark."""
    with (
        multiprocessing.get_context("spawn").Pool(PROCESSES) as processes,
        running_service() as port,
    ):
        ways = HttpWays(frame, port, processes)
        # A first run, so that the processes have started and imported everything.
        ways.without_spark(PROCESSES * SIZE)
        show(over_http(ways, rows, turns))
        show(by_a_udf(ways, rows // 1000, turns))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="spark_calls", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch")
    parser.add_argument("--only", choices=("http", "sleep", "slow", "memory"))
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only
    print(", ".join(machine.describe().values()))
    turns = Turns(2 if quick else 3, until=0.0)
    rows = 200_000 if quick else 400_000
    with session(f"local[{PROCESSES}]") as spark:
        frame = frames(spark)
        if only in (None, "http"):
            http(frame, rows, turns)
        if only in (None, "sleep"):
            show(only_sleeping(frame, rows, turns))
        if only in (None, "slow"):
            show(with_slow_ones(frame, rows, turns))
        if only in (None, "memory"):
            show(memory_of(frame, 1_000_000))
    print(f"\n{said(turns.noise())}")


if __name__ == "__main__":
    main()
