"""Databases with several tables, each database a test's own."""

import sqlite3
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres import PostgresEpochSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from tests.sinks.stores import COLUMNS, connected


class Database(Protocol):
    def sink(self, table: str) -> Any:  # noqa: ANN401  # two classes, one contract
        """A sink for one of its tables, with the default fences."""

    async def run(self, statement: str) -> list[Any]:
        """Execute it, and return what it returns."""


class Sqlite:
    def __init__(self, path: Path) -> None:
        self.path = path

    def sink(self, table: str) -> SqliteEpochSink[Any]:
        return SqliteEpochSink(self.path, table, COLUMNS, timeout=5.0)

    async def run(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            return database.execute(statement).fetchall()


class Postgres:
    """A database of its own on the server, so that `public` is as it comes."""

    def __init__(self, server: str) -> None:
        self.name = f"d_{uuid.uuid4().hex[:8]}"
        self.server = server
        self.dsn = server.rpartition("/")[0] + f"/{self.name}"

    def on_path(self, path: str) -> str:
        return f"{self.dsn}?search_path={path}"

    def sink(self, table: str, path: str = "public") -> PostgresEpochSink[Any]:
        return PostgresEpochSink(self.on_path(path), table, COLUMNS)

    async def run(self, statement: str) -> list[Any]:
        async with connected(self.dsn) as connection:
            return [tuple(row) for row in await connection.fetch(statement)]


@asynccontextmanager
async def postgres_database(server: str) -> AsyncIterator[Postgres]:
    made = Postgres(server)
    async with connected(server) as connection:
        await connection.execute(f"CREATE DATABASE {made.name}")
    try:
        yield made
    finally:
        async with connected(server) as connection:
            await connection.execute(f"DROP DATABASE {made.name} WITH (FORCE)")


async def deliver(sink: Any, epoch: Epoch, *ids: int) -> None:  # noqa: ANN401
    """Do what a stream does with an epoch, after a crash, too; then close the sink."""
    try:
        if not await sink.is_committed(epoch):
            await sink.begin(epoch)
            await sink.write(epoch, [(number, f"n{number}") for number in ids])
            await sink.commit(epoch)
    finally:
        await sink.close()


async def ids(database: Database, table: str) -> list[int]:
    rows = await database.run(f"SELECT id, name FROM {table} ORDER BY id")
    assert all(name == f"n{number}" for number, name in rows)
    return [number for number, _ in rows]
