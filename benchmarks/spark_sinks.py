"""Into PostgreSQL and Parquet: python -m benchmarks.spark_sinks [--quick].

1 M rows of 4 columns, beside what one writes by hand. A frame through
`format("batchqueue")` beside `mapInArrow` with COPY and `foreachPartition` with
psycopg, which may leave half of it, or two of it; a stream through `PostgresEpochSink`
beside `writeStream.format`; a frame into files beside Spark's own writer. All
contenders take turns; ratios come from the same turn. Needs PostgreSQL's binaries,
which it starts a server with, and psycopg.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.sinks import EpochWriter
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.spark import ForeachBatchSink, to_batches
from benchmarks import machine
from benchmarks.spark_cpu import cpu_seconds, parent_of
from benchmarks.spark_setup import frame_of, session
from benchmarks.spark_sinks_peers import RESULT, copied_by_hand, rows_by_hand
from benchmarks.spark_streams import Streams
from benchmarks.table import Column, Table, show
from benchmarks.turns import Measure, Samples, Turns
from tests.support.postgres import find_binaries, running_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 8
COLUMNS = ("name", "id", "third", "at")
TYPES = ("TEXT", "BIGINT", "FLOAT8", "TIMESTAMPTZ")

BY_HAND = "mapInArrow with CSV COPY, by hand"
BY_ROWS = "foreachPartition with psycopg's COPY, by hand"
INTO_POSTGRES = 'write.format("batchqueue"), PostgreSQL'
STREAM_INTO_POSTGRES = 'writeStream.format("batchqueue"), PostgreSQL'
EPOCHS_INTO_POSTGRES = "foreachBatch with PostgresEpochSink"
SPARKS_PARQUET = "df.write.parquet"
INTO_PARQUET = 'write.format("batchqueue"), Parquet'
INTO_SNAPPY = 'write.format("batchqueue"), Parquet, Spark\'s codec'


@dataclass(frozen=True)
class Database:
    """A server with one table."""

    url: str
    table: str = "rows"

    def empty(self) -> None:
        """Make the table, or make it anew."""
        columns = ", ".join(map(" ".join, zip(COLUMNS, TYPES, strict=True)))
        with psycopg.connect(self.url) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}")
            connection.execute(f"CREATE TABLE {self.table} ({columns})")

    def postmaster(self) -> int:
        """The process that the server's others come from."""
        with psycopg.connect(self.url) as connection:
            return parent_of(connection.info.backend_pid)

    def rows(self) -> int:
        """How many there are."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute(f"SELECT count(*) FROM {self.table}").fetchone()
        return int(found[0]) if found else 0


class Costs:
    """CPU seconds of Spark, Python and the server, beside the time on the clock.

    Args:
        server: The process that PostgreSQL's others come from.
        times: How often a sample takes all rows.
    """

    def __init__(self, server: int, times: int = 1) -> None:
        self._server = server
        self._times = times
        self.seconds: dict[str, list[float]] = {}

    def measure(self, name: str, rows: int, work: Callable[[], object]) -> Measure:
        """What measures rows per second."""

        def measured() -> float:
            before, started = self._now(), time.perf_counter()
            work()
            took = time.perf_counter() - started
            self.seconds.setdefault(name, []).append(self._now() - before)
            return rows / took

        return measured

    def _now(self) -> float:
        return cpu_seconds() + cpu_seconds(self._server)

    def per_million(self, name: str, rows: int) -> float:
        """CPU seconds for a million rows: the least of all samples."""
        return min(self.seconds[name]) / (rows * self._times) * 1e6


def into_postgres(
    spark: "SparkSession", database: Database, turns: Turns, rows: int
) -> Table:
    """A frame, from the executors."""
    frame = frame_of(spark, rows, PARTITIONS, is_cached=True)
    copied = copied_by_hand(database.url, database.table)
    each_row = rows_by_hand(database.url, database.table)
    ways: dict[str, Callable[[], object]] = {
        BY_HAND: lambda: frame.mapInArrow(copied, RESULT).collect(),
        BY_ROWS: lambda: frame.foreachPartition(each_row),
        INTO_POSTGRES: lambda: save(
            frame, "postgres", url=database.url, table=database.table
        ),
    }
    costs = Costs(database.postmaster())
    measures = {
        name: emptied(database, rows, costs.measure(name, rows, way))
        for name, way in ways.items()
    }
    found = turns.take(measures)
    frame.unpersist()
    return table_of("into PostgreSQL", BY_HAND, found, costs, rows)


def emptied(database: Database, rows: int, measure: Measure) -> Measure:
    """The same, into an empty table; all rows must be there in the end."""

    def measured() -> float:
        database.empty()
        value = measure()
        if database.rows() != rows:
            msg = f"{rows} rows were written, {database.rows()} are there"
            raise RuntimeError(msg)
        return value

    return measured


def save(frame: "DataFrame", sink: str, **options: str) -> None:
    """Write it through the data source."""
    write = frame.write.format("batchqueue").option("sink", sink)
    write.options(**options).mode("append").save()


def streams_into_postgres(streams: Streams, database: Database, turns: Turns) -> Table:
    """Micro-batches, by the driver and by the executors."""
    rows, costs = streams.rows, Costs(database.postmaster(), times=streams.batches)

    def per_second(name: str, run: Callable[[], list[float]]) -> Measure:
        def measured() -> float:
            found: list[float] = []
            work = costs.measure(name, rows, lambda: found.extend(run()))
            work()
            return rows / min(found)

        return measured

    def by_data_source() -> list[float]:
        database.empty()
        options = {"sink": "postgres", "url": database.url, "table": database.table}
        return streams.durations(
            lambda stream: stream.format("batchqueue").options(**options)
        )

    def by_epoch_sink() -> list[float]:
        database.empty()
        with LoopThread() as loop_thread:
            sink: PostgresEpochSink[Any] = PostgresEpochSink(
                database.url, database.table, COLUMNS
            )
            writer = EpochWriter(sink)
            queue = loop_thread.open("rows", BatchQueueConfig(consumer=writer))
            function = ForeachBatchSink(queue, to_batches, writer)
            return streams.durations(lambda stream: stream.foreachBatch(function))

    found = turns.take(
        {
            name: per_second(name, run)
            for name, run in (
                (STREAM_INTO_POSTGRES, by_data_source),
                (EPOCHS_INTO_POSTGRES, by_epoch_sink),
            )
        }
    )
    return table_of("streams", STREAM_INTO_POSTGRES, found, costs, rows)


def into_parquet(
    spark: "SparkSession", folder: Path, database: Database, turns: Turns, rows: int
) -> Table:
    """A frame, from the executors, with the codec of either."""
    frame = frame_of(spark, rows, PARTITIONS, is_cached=True)
    target = folder / "rows"

    def fresh(measure: Measure) -> Measure:
        def measured() -> float:
            shutil.rmtree(target, ignore_errors=True)
            return measure()

        return measured

    directory = str(target)
    ways: dict[str, Callable[[], object]] = {
        SPARKS_PARQUET: lambda: frame.write.parquet(directory),
        INTO_PARQUET: lambda: save(frame, "parquet", directory=directory),
        INTO_SNAPPY: lambda: save(
            frame, "parquet", directory=directory, compression="snappy"
        ),
    }
    costs = Costs(database.postmaster())
    found = turns.take(
        {name: fresh(costs.measure(name, rows, way)) for name, way in ways.items()}
    )
    frame.unpersist()
    return table_of("into Parquet", SPARKS_PARQUET, found, costs, rows)


def table_of(
    key: str, base: str, found: Mapping[str, Samples], costs: Costs, rows: int
) -> Table:
    """Each way beside the first."""
    table = Table(
        key,
        f"{key}: {rows:,} rows of 4 columns, 2 cores",
        [
            Column("way"),
            Column("million rows/s", "millions"),
            Column(f"beside {base}", "percent"),
            Column("CPU ms per million rows, all processes", "count"),
        ],
    )
    for name, samples in found.items():
        cost = costs.per_million(name, rows) * 1e3
        table.add(name, samples.median, samples.beside(found[base]), cost)
    return table


@contextmanager
def server() -> Iterator[str]:
    """A server of its own, or the reason why not."""
    binaries = find_binaries()
    if binaries is None:
        msg = "this needs PostgreSQL: no initdb and pg_ctl on this machine"
        raise SystemExit(msg)
    with running_server(binaries) as url:
        yield url


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="spark_sinks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch")
    parser.add_argument("--only", choices=["postgres", "streams", "parquet"])
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=None)
    arguments = parser.parse_args()
    rows = arguments.rows or (200_000 if arguments.quick else 1_000_000)
    # Spark's own processes count as disturbances: nothing is taken again.
    turns = Turns(arguments.rounds or (2 if arguments.quick else 4), until=0.0)
    print(", ".join(machine.describe().values()))
    with (
        server() as url,
        session("local[2]") as spark,
        tempfile.TemporaryDirectory() as folder,
    ):
        database = Database(url)
        if arguments.only in {None, "postgres"}:
            show(into_postgres(spark, database, turns, rows))
        if arguments.only in {None, "streams"}:
            streams = Streams(spark, rows, Path(folder), partitions=2)
            show(streams_into_postgres(streams, database, turns))
        if arguments.only in {None, "parquet"}:
            show(into_parquet(spark, Path(folder), database, turns, rows))


if __name__ == "__main__":
    main()
