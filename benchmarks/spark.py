"""Rows per second on executors: python -m benchmarks.spark [--quick].

First on one machine's cores: what the queue costs beside what one would write by hand.
Then on a standalone cluster, one executor and two with one core each, with a sink that
takes time: whether two do twice as much. All contenders take turns; medians count.
Takes some minutes. Prints the rows that the guide shows, and which goals it reached.
"""

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from batchqueue_async.spark import to_batches, write_partitions
from benchmarks import machine
from benchmarks.spark_cpu import cpu_seconds
from benchmarks.spark_goals import (
    BARE,
    BATCH_WRITE,
    EXECUTORS,
    RATE,
    SHARE,
    STREAM_WRITE,
    WRITE_PARTITIONS,
    reached,
)
from benchmarks.spark_peer import RESULT, into_bare_queue
from benchmarks.spark_scaling import scaling
from benchmarks.spark_setup import OpenSlowQueue, frame_of, rate, save, session
from benchmarks.spark_streams import Streams
from benchmarks.table import Column, Table, show
from benchmarks.turns import Measure, Turns

PARTITIONS = 8


def on_one_machine(rounds: int, rows: int) -> Table:
    """Each way on executors beside a queue that is written by hand."""
    # Spark's own processes count as disturbances: nothing is taken again.
    turns = Turns(rounds, until=0.0)
    with session("local[2]") as spark, tempfile.TemporaryDirectory() as folder:
        frame = frame_of(spark, rows, PARTITIONS, is_cached=True)
        streams = Streams(spark, rows // 4, Path(folder), partitions=2)
        measures: Mapping[str, Measure] = {
            BARE: rate(
                rows, lambda: frame.mapInArrow(into_bare_queue, RESULT).collect()
            ),
            WRITE_PARTITIONS: rate(
                rows,
                lambda: write_partitions(frame, OpenSlowQueue(), to_items=to_batches),
            ),
            BATCH_WRITE: rate(rows, lambda: save(frame)),
            STREAM_WRITE: lambda: (
                streams.rows / statistics.median(streams.data_source())
            ),
        }
        samples = turns.take(measures)
        costs = {
            name: _cost(measure)
            for name, measure in measures.items()
            if name != STREAM_WRITE
        }
    table = Table(
        "one machine",
        f"On 2 cores, {rows:,} rows of 4 columns; without: {BARE}",
        [
            Column("way"),
            Column(RATE, "millions"),
            Column(SHARE, "percent"),
            Column("CPU ms per million rows, all processes", "count"),
            Column("... of the same without", "percent"),
        ],
    )
    for name, sample in samples.items():
        cost = costs.get(name)
        table.add(
            name,
            sample.median,
            sample.median / samples[BARE].median,
            None if cost is None else cost / rows * 1e9,
            None if cost is None else cost / costs[BARE],
        )
    return table


def _cost(measure: Measure) -> float:
    """CPU seconds of one job; the median of three."""
    found = []
    for _ in range(3):
        before = cpu_seconds()
        measure()
        found.append(cpu_seconds() - before)
    return statistics.median(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch")
    parser.add_argument("--no-cluster", action="store_true", help="one machine only")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else 5
    print(", ".join(machine.describe().values()))
    tables = [on_one_machine(rounds, 1_000_000 if arguments.quick else 4_000_000)]
    show(tables[0])
    if not arguments.no_cluster:
        tables.append(scaling(2 if arguments.quick else 3, 400_000))
        show(tables[1])
    show(reached(EXECUTORS, tables))


if __name__ == "__main__":
    main()
