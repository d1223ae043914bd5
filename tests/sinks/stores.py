"""The places that sinks write to, as the tests see them: from outside."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq

from batchqueue_async.sinks import EpochSink
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink

Row: TypeAlias = tuple[Any, ...]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
COLUMNS = ("id", "name")


class Store(Protocol):
    """A table with the columns `id` (a number) and `name` (a text)."""

    def sink(self) -> EpochSink[Any]:
        """A new sink, as another process would make it."""

    async def rows(self) -> list[Row]:
        """What a reader sees, sorted."""

    async def remains(self) -> list[str]:
        """What is there besides the rows and the fences."""


class SqliteStore:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        with closing(sqlite3.connect(self.path)) as database:
            database.execute("CREATE TABLE items (id INTEGER, name TEXT)")

    def sink(self) -> EpochSink[Any]:
        return SqliteEpochSink(self.path, "items", COLUMNS, timeout=5.0)

    async def rows(self) -> list[Row]:
        return sorted(self.ask("SELECT id, name FROM items"))

    async def remains(self) -> list[str]:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in self.ask(query)}
        return sorted(tables - {"items", "batchqueue_epochs"})

    def ask(self, query: str) -> list[Row]:
        with closing(sqlite3.connect(self.path)) as database:
            return database.execute(query).fetchall()


class ParquetStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"

    def sink(self) -> EpochSink[Any]:
        return ParquetEpochSink(self.folder, schema=SCHEMA)

    async def rows(self) -> list[Row]:
        if not self.folder.exists():
            return []
        table = pq.read_table(self.folder, partitioning=None)
        if not table.num_columns:
            return []
        columns = table.select(COLUMNS).to_pydict().values()
        return sorted(zip(*columns, strict=True))

    async def remains(self) -> list[str]:
        staging = self.folder / "_staging"
        return [path.name for path in staging.iterdir()] if staging.exists() else []


class PostgresStore:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def sink(self) -> EpochSink[Any]:
        return PostgresEpochSink(self.dsn, "sinks.items", COLUMNS)

    async def rows(self) -> list[Row]:
        return await self.ask("SELECT id, name FROM sinks.items ORDER BY 1, 2")

    async def remains(self) -> list[str]:
        query = """SELECT relname FROM pg_class WHERE relkind = 'r'
            AND relnamespace = 'sinks'::regnamespace ORDER BY 1"""
        tables = {name for (name,) in await self.ask(query)}
        return sorted(tables - {"items", "batchqueue_epochs"})

    async def ask(self, query: str) -> list[Row]:
        async with connected(self.dsn) as connection:
            return [tuple(record) for record in await connection.fetch(query)]


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def make_postgres_store(dsn: str) -> PostgresStore:
    async with connected(dsn) as connection:
        await connection.execute(
            """DROP SCHEMA IF EXISTS sinks CASCADE;
            CREATE SCHEMA sinks;
            CREATE TABLE sinks.items (id BIGINT, name TEXT)"""
        )
    return PostgresStore(dsn)
