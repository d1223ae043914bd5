"""Databases with several tables, each database a test's own."""

import sqlite3
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final, Protocol

import asyncpg

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

    def __init__(self, server: str, name: str) -> None:
        self.name = name
        self.server = server
        self.dsn = server.rpartition("/")[0] + f"/{self.name}"
        # To connect takes longer than most of what is asked.
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    def on_path(self, path: str) -> str:
        return f"{self.dsn}?search_path={path}"

    def sink(self, table: str, path: str = "public") -> PostgresEpochSink[Any]:
        return PostgresEpochSink(self.on_path(path), table, COLUMNS)

    async def run(self, statement: str) -> list[Any]:
        if self._connection is None or self._connection.is_closed():
            # Tables of one name come and go: no plan outlives its statement.
            self._connection = await asyncpg.connect(self.dsn, statement_cache_size=0)
        return [tuple(row) for row in await self._connection.fetch(statement)]

    @property
    def own_process(self) -> int:
        """The server's process for what `run` asks; 0 before it has asked anything."""
        return 0 if self._connection is None else self._connection.get_server_pid()

    async def clear(self) -> None:
        """Leave it as it was made, with nobody in it."""
        await self.run(
            """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()"""
        )
        schemas = """SELECT quote_ident(nspname) FROM pg_namespace
            WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"""
        for (schema,) in await self.run(schemas):
            await self.run(f"DROP SCHEMA {schema} CASCADE")
        await self.run("CREATE SCHEMA public AUTHORIZATION pg_database_owner")
        await self.run("GRANT USAGE ON SCHEMA public TO PUBLIC")
        await self.run(f"ALTER DATABASE {self.name} RESET ALL")

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


# By server. To make one takes twenty times as long as to clear it.
_cleared: Final[dict[str, list[str]]] = {}


@asynccontextmanager
async def postgres_database(server: str) -> AsyncIterator[Postgres]:
    names = _cleared.setdefault(server, [])
    if names:
        made = Postgres(server, names.pop())
    else:
        made = Postgres(server, f"d_{uuid.uuid4().hex[:8]}")
        async with connected(server) as connection:
            await connection.execute(f"CREATE DATABASE {made.name}")
    try:
        yield made
        await made.clear()
        names.append(made.name)
    finally:
        await made.close()


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
