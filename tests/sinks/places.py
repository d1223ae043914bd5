"""The places that staged sinks fill, as the tests see them: from outside."""

import asyncio
import os
import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pyarrow as pa
import pyarrow.dataset

from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from batchqueue_async.sinks.staged import Attempt, StagedSink, Token

EPOCH = Epoch("a query", 7)


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "word": [f"w{n}" for n in ids]}
    )


def attempt(
    partition: int = 0,
    run: str = "run",
    epoch: Epoch = EPOCH,
    *,
    is_announced: bool = False,
) -> Attempt:
    return Attempt(epoch, run, partition, uuid.uuid4().hex, is_announced)


async def sealed(sink: StagedSink[Any], mine: Attempt, *ids: int) -> Token:
    await sink.stage(mine, [batch(*ids)])
    return await sink.seal(mine)


class Place(Protocol):
    """Where a sink writes, seen from outside."""

    def sink(self) -> StagedSink[Any]:
        """A new sink for it, as another process would make."""

    async def ids(self) -> list[int]:
        """What everybody sees."""

    async def leftovers(self) -> int:
        """How much lies there that nobody sees."""

    async def traces(self) -> int:
        """The same, with empty folders."""

    async def lose_staged(self) -> None:
        """Do what a crash of the server, or of the disk, does."""

    async def kill(self, sink: StagedSink[Any]) -> None:
        """Do what SIGKILL does to the sink's process, as seen from outside."""

    async def age(self, days: float) -> None:
        """Make everything that is staged older."""


class ParquetPlace:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def sink(self) -> StagedSink[Any]:
        return ParquetStagedSink(self._directory)

    async def ids(self) -> list[int]:
        self._directory.mkdir(exist_ok=True)
        seen = pyarrow.dataset.dataset(self._directory, format="parquet")
        return sorted(seen.to_table()["id"].to_pylist()) if seen.files else []

    async def leftovers(self) -> int:
        return sum(path.is_file() for path in self._directory.glob("_staged/**/*"))

    async def traces(self) -> int:
        return len(list(self._directory.glob("_staged/*")))

    async def lose_staged(self) -> None:
        for path in self._directory.glob("_staged/**/*.parquet"):
            path.unlink()

    async def kill(self, sink: StagedSink[Any]) -> None:
        """Nothing: its files stay as they are, for as long as it is not closed."""

    async def age(self, days: float) -> None:
        then = time.time() - days * 24 * 3600
        for path in self._directory.glob("_staged/**/*"):
            os.utime(path, (then, then))


class SqlitePlace:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._ask("CREATE TABLE items (word TEXT, id INTEGER)")

    def sink(self) -> StagedSink[Any]:
        return SqliteStagedSink(self._file, "items")

    async def ids(self) -> list[int]:
        rows = self._ask("SELECT id, word FROM items ORDER BY id")
        assert all(word == f"w{number}" for number, word in rows)
        return [number for number, _ in rows]

    async def leftovers(self) -> int:
        ((rows, attempts),) = self._ask(
            "SELECT (SELECT count(*) FROM items_staged),"
            " (SELECT count(*) FROM batchqueue_attempts)"
        )
        return int(rows + attempts)

    async def traces(self) -> int:
        return await self.leftovers()

    async def lose_staged(self) -> None:
        self._ask("DELETE FROM items_staged")

    async def kill(self, sink: StagedSink[Any]) -> None:
        assert isinstance(sink, SqliteStagedSink)
        await sink._file.close()

    async def age(self, days: float) -> None:
        self._ask(
            "UPDATE batchqueue_attempts SET started_at ="
            f" datetime('now', '-{days} days')"
        )

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._file)) as database, database:
            return database.execute(query).fetchall()


class PostgresPlace:
    def __init__(self, dsn: str, table: str) -> None:
        self._dsn = dsn
        self._table = table

    async def make(self) -> None:
        await self._ask(f'CREATE TABLE "{self._table}" (word TEXT, id BIGINT)')

    def sink(self) -> StagedSink[Any]:
        return PostgresStagedSink(self._dsn, self._table)

    async def ids(self) -> list[int]:
        rows = await self._ask(f'SELECT id, word FROM "{self._table}" ORDER BY id')
        assert all(row["word"] == f"w{row['id']}" for row in rows)
        return [row["id"] for row in rows]

    async def leftovers(self) -> int:
        rows = await self._ask(
            f"""SELECT (SELECT count(*) FROM "{self._table}_staged") +
            (SELECT count(*) FROM batchqueue_attempts WHERE target = '{self._table}')"""
        )
        left: int = rows[0][0]
        return left

    async def traces(self) -> int:
        return await self.leftovers()

    async def lose_staged(self) -> None:
        await self._ask(f'TRUNCATE "{self._table}_staged"')

    async def kill(self, sink: StagedSink[Any]) -> None:
        assert isinstance(sink, PostgresStagedSink)
        sink._connections.close()
        await wait_for_quiet(self._dsn)

    async def age(self, days: float) -> None:
        await self._ask(
            "UPDATE batchqueue_attempts SET started_at ="
            f" now() - INTERVAL '{days} days' WHERE target = '{self._table}'"
        )

    async def _ask(self, query: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self._dsn)
        try:
            return await connection.fetch(query)
        finally:
            await connection.close()


async def make_postgres_place(dsn: str) -> PostgresPlace:
    made = PostgresPlace(dsn, f"t_{uuid.uuid4().hex[:8]}")
    await made.make()
    return made


async def wait_for_quiet(dsn: str) -> None:
    """Wait until the server has noticed that its clients are gone."""
    busy = """SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
        AND backend_type = 'client backend' AND state <> 'idle'"""
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(10):
            while await connection.fetchval(busy):  # noqa: ASYNC110  # a server's
                await asyncio.sleep(0.01)
    finally:
        await connection.close()
