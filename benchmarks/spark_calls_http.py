"""Calls over HTTP: `map_async`, what people write today, and no Spark at all.

All call the same service, 20 ms away, of whose answers one in a hundred is an error and
one a 429, with as many calls at a time. Contenders that keep the order wait for calls
that are tried again. `asyncio.gather` and a thread pool keep all results of a record
batch meanwhile, and so does `map_async`; with `reorder_buffer=0` it keeps none but
those of calls that count as in flight, and there is a client by hand that does the
same.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from multiprocessing.pool import Pool
from typing import TYPE_CHECKING, Any

from batchqueue_async import Retry
from batchqueue_async.spark import map_async
from benchmarks.spark_calls_peers import (
    ATTEMPTS,
    Ask,
    OpenSession,
    by_gather,
    in_threads,
    pipelined,
    pipelined_in_order,
    post,
)
from benchmarks.spark_cpu import cpu_seconds
from benchmarks.table import Column, Table
from benchmarks.turns import Measure, Samples, Turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = Callable[[int], "DataFrame"]
Work = Callable[[int], object]
Calls = Callable[[int, range, int, int], Coroutine[Any, Any, int]]

PROCESSES = 2
SIZE = 100
IN_FLIGHT = 8
BATCH_ROWS = 10_000
"""Of Spark's record batches, unless it is told otherwise."""
RETRY = Retry(attempts=ATTEMPTS, wait_initial=0.02)
RESULT = "y BIGINT"

OURS = "map_async"
STRICT = "map_async, reorder_buffer=0"
UNORDERED = "map_async, ordered=False"
FLOOR = "aiohttp, pipelined by hand, without Spark"
STRICT_FLOOR = "aiohttp in order by hand, 8 in flight with those that wait"
GATHER = "asyncio.gather in mapInArrow"
THREADS = "a thread pool in mapInArrow"
UDF = "a UDF, one call for each row"


def seconds(work: Callable[[], object]) -> float:
    """Return what it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def summed(frame: "DataFrame", column: str = "y") -> object:
    """Compute all of it, and bring one number."""
    return frame.selectExpr(f"sum({column})").collect()


class HttpWays:
    """Each way to make the calls for a number of rows."""

    def __init__(self, frame: Frame, port: int, processes: Pool) -> None:
        self._frame = frame
        self._port = port
        self._processes = processes
        self.ways: Mapping[str, Work] = {
            FLOOR: self.without_spark,
            OURS: self._mapped(),
            UNORDERED: self._mapped(ordered=False),
            GATHER: self._in_arrow(by_gather(SIZE, IN_FLIGHT, port=port)),
            THREADS: self._in_arrow(in_threads(port, SIZE, IN_FLIGHT)),
            STRICT_FLOOR: partial(self.without_spark, calls=pipelined_in_order),
            STRICT: self._mapped(reorder_buffer=0),
        }

    def without_spark(self, rows: int, calls: Calls = pipelined) -> None:
        """Have as many processes make the same calls."""
        share = rows // PROCESSES
        parts = [
            (calls, self._port, range(at, at + share)) for at in range(0, rows, share)
        ]
        self._processes.starmap(_by_hand, parts, chunksize=1)

    def row_by_row(self, rows: int) -> object:
        """Call for each row by itself."""
        from pyspark.sql.functions import udf  # noqa: PLC0415  # slow

        port = self._port
        doubled = udf(lambda number: post(port, number), "BIGINT")
        return summed(self._frame(rows).select(doubled("id").alias("y")))

    def _mapped(self, **order: Any) -> Work:  # noqa: ANN401 - either setting
        return lambda rows: summed(
            map_async(
                self._frame(rows),
                Ask(),
                RESULT,
                open=OpenSession(self._port),
                max_batch=SIZE,
                in_flight=IN_FLIGHT,
                retry=RETRY,
                **order,
            )
        )

    def _in_arrow(self, run: Any) -> Work:  # noqa: ANN401 - for `mapInArrow`
        return lambda rows: summed(self._frame(rows).mapInArrow(run, RESULT))


def over_http(ways: HttpWays, rows: int, turns: Turns) -> Table:
    """Measure everybody, and the floor outside of Spark.

    Each turn has a job of all rows and one of a quarter of them: what the first takes
    longer is the steady state, without the start of a job.
    """
    few = rows // 4
    cpu: dict[str, list[float]] = {name: [] for name in ways.ways}
    measures: dict[str, Measure] = {}
    for name, work in ways.ways.items():
        measures[name] = _timed(work, rows, cpu[name])
        measures[f"{name}, few"] = _timed(work, few)
        # A first run, which imports clients and starts worker processes.
        work(few)
    samples = turns.take(measures, warm_up=False)
    table = Table(
        "http",
        f"Over HTTP, {rows:,} rows, {SIZE} in a call, {IN_FLIGHT} calls at a time in"
        f" each of {PROCESSES} processes, the service's CPU included; steady: less a"
        f" job of {few:,} rows",
        [
            Column("way"),
            Column("rows/s", "count"),
            Column(f"of {FLOOR}", "percent"),
            Column("steady rows/s", "count"),
            Column("steady, of that", "percent"),
            Column("CPU us per row", "bytes"),
        ],
    )
    whole = {name: _rates(rows, samples[name]) for name in ways.ways}
    steady = {
        name: _rates(rows - few, samples[name], samples[f"{name}, few"])
        for name in ways.ways
    }
    for name in ways.ways:
        table.add(
            name,
            whole[name].median,
            whole[name].beside(whole[FLOOR]),
            steady[name].median,
            steady[name].beside(steady[FLOOR]),
            statistics.median(cpu[name]) * 1e6,
        )
    return table


def by_a_udf(ways: HttpWays, rows: int, turns: Turns) -> Table:
    """Measure what waits for each row by itself, with fewer rows."""
    measures = {UDF: _timed(ways.row_by_row, rows)}
    rates = _rates(rows, turns.take(measures, warm_up=False)[UDF])
    table = Table(
        "udf", f"{UDF}, {rows:,} rows", [Column("way"), Column("rows/s", "count")]
    )
    table.add(UDF, rates.median)
    return table


def _timed(work: Work, rows: int, cpu: list[float] | None = None) -> Measure:
    def measure() -> float:
        before = cpu_seconds()
        taken = seconds(lambda: work(rows))
        if cpu is not None:
            cpu.append((cpu_seconds() - before) / rows)
        return taken

    return measure


def _rates(rows: int, taken: Samples, less: Samples | None = None) -> Samples:
    """Return rows per second, turn by turn."""
    start = [0.0] * len(taken.values) if less is None else less.values
    pairs = zip(taken.values, start, strict=True)
    return Samples([rows / (whole - small) for whole, small in pairs])


def _by_hand(calls: Calls, port: int, numbers: range) -> int:
    return asyncio.run(calls(port, numbers, SIZE, IN_FLIGHT))
