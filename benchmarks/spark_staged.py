"""The single figures of docs/scale.md: python -m benchmarks.spark_staged [--quick].

What staging, sealing and publishing take with PostgreSQL and with Parquet files, one
process and one connection; what a receipt weighs; what Spark itself takes for a
micro-batch. Medians; needs PostgreSQL's binaries, which it starts a server with.
"""

import argparse
import asyncio
import pickle
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow as pa

from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.staged import Attempt, StagedSink, Token
from batchqueue_async.spark import to_batches, write_partitions
from batchqueue_async.spark.data_source import Staged
from benchmarks import machine
from benchmarks.spark_setup import OpenSlowQueue, frame_of, rate, session
from benchmarks.spark_streams import Streams
from benchmarks.table import Column, Table, show
from tests.support.postgres import find_binaries, running_server

BATCH = 10_000
FILES = 200
TABLE = "CREATE TABLE rows (name TEXT, id BIGINT, third FLOAT8, at TIMESTAMPTZ)"
Figure = tuple[str, str]
Work = Callable[[Epoch], Awaitable[float]]


def batches(rows: int) -> list[pa.RecordBatch]:
    """Rows of four columns, as Spark gives them to a task."""
    made = []
    for start in range(0, rows, BATCH):
        ids = pa.array(range(start, start + min(BATCH, rows - start)), pa.int64())
        columns = {
            "name": pa.array([f"name {n}" for n in ids.to_pylist()]),
            "id": ids,
            "third": pa.array([n / 3 for n in ids.to_pylist()]),
            "at": ids.cast(pa.timestamp("us", "UTC")),
        }
        made.append(pa.RecordBatch.from_pydict(columns))
    return made


async def staged(
    sink: StagedSink[Any], epoch: Epoch, rows: list[pa.RecordBatch], partition: int = 0
) -> Token:
    """One attempt, from its beginning to its seal."""
    attempt = Attempt(epoch, "run", partition, uuid.uuid4().hex)
    for batch in rows:
        await sink.stage(attempt, [batch])
    return await sink.seal(attempt)


async def timed(work: Awaitable[object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


class Store:
    """One sink, and epochs that nobody has used before."""

    def __init__(self, sink: StagedSink[Any], rows: int, rounds: int) -> None:
        self._sink = sink
        self._many = batches(rows)
        self._rounds = rounds
        self._epochs = (Epoch("benchmark", number) for number in range(1_000_000))
        self.rows = rows

    async def stage(self, rows: list[pa.RecordBatch]) -> float:
        """Seconds for an attempt with these rows."""
        return await self._median(lambda epoch: timed(staged(self._sink, epoch, rows)))

    async def stage_many(self) -> float:
        """Seconds for an attempt with all rows."""
        return await self.stage(self._many)

    async def publish(self, partitions: int, rows: list[pa.RecordBatch]) -> float:
        """Seconds for a publish of so many attempts."""

        async def work(epoch: Epoch) -> float:
            tokens = [
                await staged(self._sink, epoch, rows, partition)
                for partition in range(partitions)
            ]
            return await timed(self._sink.publish(epoch, tokens))

        return await self._median(work)

    async def publish_many(self) -> float:
        """Seconds for a publish of one attempt with all rows."""
        return await self.publish(1, self._many)

    async def _median(self, work: Work) -> float:
        await work(next(self._epochs))
        found = [await work(next(self._epochs)) for _ in range(self._rounds)]
        return statistics.median(found)


async def postgres(dsn: str, rows: int, rounds: int) -> list[Figure]:
    """The rows of the table about PostgreSQL."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLE)
    await connection.close()
    sink = PostgresStagedSink(dsn, "rows")
    store = Store(sink, rows, rounds)
    copied, published = await store.stage_many(), await store.publish_many()
    found = [
        ("COPY of 4 columns, one connection", _rate(rows, copied)),
        ("publishing in PostgreSQL, one transaction", _rate(rows, published)),
        ("an attempt of one row in PostgreSQL", _ms(await store.stage(batches(1)))),
        ("an epoch without rows, publish", _ms(await store.publish(0, []))),
    ]
    await sink.close()
    return found


async def parquet(folder: Path, rows: int, rounds: int) -> list[Figure]:
    """The rows of the table about files."""
    sink = ParquetStagedSink(folder)
    store = Store(sink, rows, rounds)
    one = await store.publish(1, batches(1))
    many = await store.publish(FILES, batches(1))
    found = [
        ("writing Parquet, one core", _rate(rows, await store.stage_many())),
        ("an attempt of one row in Parquet", _ms(await store.stage(batches(1)))),
        ("publishing a Parquet file: one rename", _ms((many - one) / (FILES - 1))),
    ]
    await sink.close()
    return found


def message() -> Figure:
    """The row about the way to the commit."""
    run, query, name = (str(uuid.uuid4()) for _ in range(3))
    token = Token(Attempt(Epoch(query, 1), run, 1, name), 1, "name\0id\0third\0at")
    size = len(pickle.dumps(Staged(token)))
    return "the message of a task to the commit", f"{size} bytes"


def spark(folder: Path, rows: int, rounds: int) -> list[Figure]:
    """The rows of the table about Spark, on one core."""
    with session("local[1]") as running:
        frame = frame_of(running, rows, 4, is_cached=True)
        into_queue = rate(
            rows,
            lambda: write_partitions(frame, OpenSlowQueue(), to_items=to_batches),
        )
        speed = statistics.median([into_queue() for _ in range(rounds + 1)][1:])
        streams = Streams(running, 1, folder)
        empty = [s for _ in range(rounds) for s in streams.data_source()]
    return [
        ("rows through Arrow into a queue, one core", _rate(1, 1 / speed)),
        ("a micro-batch that does nothing", _ms(statistics.median(empty))),
    ]


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds / 1e6:.2f} million/s"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="spark_staged", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sketch")
    is_quick = parser.parse_args().quick
    rows, rounds = (50_000, 1) if is_quick else (500_000, 5)
    binaries = find_binaries()
    if binaries is None:
        msg = "this needs PostgreSQL: no initdb and pg_ctl on this machine"
        raise SystemExit(msg)
    print(", ".join(machine.describe().values()))
    table = Table("staged", "Single figures", [Column("figure"), Column("measured")])
    with running_server(binaries) as dsn, tempfile.TemporaryDirectory() as folder:
        found = [
            *asyncio.run(postgres(dsn, rows, rounds)),
            *asyncio.run(parquet(Path(folder, "parquet"), rows, rounds)),
            message(),
            *spark(Path(folder), rows * 4, rounds),
        ]
    for name, measured in found:
        table.add(name, measured)
    show(table)


if __name__ == "__main__":
    main()
