"""Queues inside of a frame: python -m benchmarks.spark_emitting [--quick].

Sums by key, in each task and once more after a shuffle by key:
`map_partitions_with_queue` beside what is written by hand, with the same work per row,
and per record batch; and what Spark has of its own. All contenders take turns, on two
cores; ratios are those of the same turn. Prints the rows that the guide shows.
"""

import argparse
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.spark_cpu import cpu_seconds
from benchmarks.spark_emitting_peers import (
    applied_in_pandas,
    by_dict,
    by_pandas,
    of_spark,
    queue_of_batches,
    queue_of_rows,
)
from benchmarks.spark_setup import rate, session
from benchmarks.table import Column, Table, show
from benchmarks.turns import Measure, Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

SHOPS, TASKS = 1_000, 4

ROWS = "map_partitions_with_queue of tuples, Merging"
DICT = "mapInArrow, a dict by hand"
BATCHES = "map_partitions_with_queue of record batches, pandas"
PANDAS = "mapInPandas, pandas"
APPLY = "applyInPandas for each key"
SPARK = "groupBy().sum()"

PEERS = {ROWS: DICT, BATCHES: PANDAS}
"""Who does the same per row, or per record batch, without a queue."""

RATE = "million rows/s"
SHARE = "of the same without a queue"


def measured(rounds: int, rows: int) -> Table:
    """Measure everybody, job start included."""
    contenders: Mapping[str, Callable[[DataFrame], DataFrame]] = {
        DICT: by_dict,
        ROWS: queue_of_rows,
        PANDAS: by_pandas,
        BATCHES: queue_of_batches,
        APPLY: applied_in_pandas,
        SPARK: of_spark,
    }
    turns = Turns(rounds, until=0.0)
    with session("local[2]") as spark:
        sales = spark.range(0, rows, 1, TASKS).selectExpr(
            f"'shop ' || id * 7 % {SHOPS} AS shop", "id % 100 AS euros"
        )
        sales.cache().count()
        costs: dict[str, list[float]] = {name: [] for name in contenders}

        def measure(name: str) -> Measure:
            def job() -> None:
                before = cpu_seconds()
                summed = contenders[name](sales)
                (found,) = summed.selectExpr("count(*)", "sum(euros)").collect()
                assert tuple(found) == (SHOPS, sum(range(100)) * rows // 100), name
                costs[name].append(cpu_seconds() - before)

            return rate(rows, job)

        samples = turns.take({name: measure(name) for name in contenders})
    table = Table(
        "emitting",
        f"On 2 cores, {rows:,} rows, {SHOPS:,} keys, {TASKS} tasks before the shuffle",
        [
            Column("sums by key"),
            Column(RATE, "millions"),
            Column(SHARE, "percent"),
            Column("CPU ms per million rows, all processes", "count"),
            Column("... of the same without", "percent"),
        ],
    )
    for name, sample in samples.items():
        peer = PEERS.get(name)
        cost = statistics.median(costs[name])
        table.add(
            name,
            sample.median,
            None if peer is None else sample.beside(samples[peer]),
            cost / rows * 1e9,
            None if peer is None else cost / statistics.median(costs[peer]),
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="spark_emitting", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch")
    is_quick = parser.parse_args().quick
    print(", ".join(machine.describe().values()))
    show(measured(2, 400_000) if is_quick else measured(5, 1_000_000))


if __name__ == "__main__":
    main()
