"""Very many partitions: python -m benchmarks.spark_partitions [--quick].

The same rows in 8, 100, 500 and 1,000 partitions: to the driver by `push` and by what
Spark has (`toLocalIterator` runs a job for each partition, `toArrow` needs room for all
rows), and into PostgreSQL by the data source and by hand. Prints seconds: medians of
turns in one session, after a first turn that warms it up.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async.spark import push, to_batches
from benchmarks import machine
from benchmarks.spark_driver import handle
from benchmarks.spark_setup import frame_of, session
from benchmarks.spark_sinks import Database, save, server
from benchmarks.spark_sinks_peers import RESULT, copied_by_hand
from benchmarks.table import Column, Table, show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 100_000
COUNTS = (8, 100, 500, 1000)
ITERATOR = "toLocalIterator"
Seconds = dict[tuple[str, int], list[float]]


def ways(
    frame: "DataFrame", queue: SyncBatchQueue[Any], database: Database
) -> dict[str, Callable[[], object]]:
    """Return what is measured with a frame."""
    copied = copied_by_hand(database.url, database.table)
    return {
        "push of record batches": lambda: push(frame, queue, to_items=to_batches),
        "toArrow": frame.toArrow,
        ITERATOR: lambda: sum(1 for _ in frame.toLocalIterator()),
        'write.format("batchqueue"), PostgreSQL': lambda: save(
            frame, "postgres", url=database.url, table=database.table
        ),
        "mapInArrow with CSV COPY, by hand": lambda: frame.mapInArrow(
            copied, RESULT
        ).collect(),
    }


def measure(url: str, rows: int, rounds: int) -> Seconds:
    """Return what each way took, for each number of partitions."""
    found: Seconds = defaultdict(list)
    database = Database(url)
    with session("local[2]") as spark, LoopThread() as loop_thread:
        queue = loop_thread.open("rows", BatchQueueConfig[Any](consumer=handle))
        for number in range(rounds + 1):
            for count in COUNTS:
                frame = frame_of(spark, rows, count)
                for name, run in ways(frame, queue, database).items():
                    # It runs a job for each partition: a minute for 500 of them.
                    if name == ITERATOR and count > COUNTS[1]:
                        continue
                    database.empty()
                    started = time.perf_counter()
                    run()
                    if number:
                        found[name, count].append(time.perf_counter() - started)
    return found


def table_of(found: Seconds, rows: int) -> Table:
    """Each way's seconds, by the number of partitions."""
    table = Table(
        "partitions",
        f"{rows:,} rows in so many partitions, 2 cores, seconds",
        [Column("way"), *(Column(f"{count:,}", "seconds") for count in COUNTS)],
    )
    for name in dict.fromkeys(name for name, _ in found):
        times = [found.get((name, count)) for count in COUNTS]
        table.add(name, *(statistics.median(each) if each else None for each in times))
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="spark_partitions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch")
    parser.add_argument("--rounds", type=int, default=None)
    arguments = parser.parse_args()
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    print(", ".join(machine.describe().values()))
    with server() as url:
        show(table_of(measure(url, ROWS, rounds), ROWS))


if __name__ == "__main__":
    main()
