"""The default sink: a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Self

import aiosqlite

from .database import Row, Run
from .problems import Problem, first_line
from .schema import (
    METRIC_COLUMNS,
    TABLES,
    TOP_COLUMNS,
    Dialect,
    combine_metrics,
    create_tables,
    replace_top_delays,
)

_WORDS = Dialect("TEXT", "MIN", "MAX", "WITHOUT ROWID")
_WRITE_METRICS = (
    f"INSERT INTO metrics VALUES ({', '.join('?' * len(METRIC_COLUMNS))})"
    + combine_metrics(_WORDS)
)
_WRITE_TOP_DELAYS = (
    f"INSERT INTO top_delays VALUES ({', '.join('?' * len(TOP_COLUMNS))})"
    + replace_top_delays()
)
_PAGE = 10_000


class SqliteDatabase:
    """A connection to a SQLite file."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Open the file, or create it."""
        try:
            connection = await aiosqlite.connect(path, isolation_level=None)
        except sqlite3.Error as error:
            raise _unusable(path, error) from error
        try:
            # Others may read while the demo writes.
            await connection.execute("PRAGMA journal_mode = WAL")
            await connection.execute("PRAGMA synchronous = NORMAL")
            await connection.execute("PRAGMA cache_size = -65536")
        except sqlite3.Error as error:
            await connection.close()
            raise _unusable(path, error) from error
        return cls(connection)

    async def reset(self) -> None:
        """Begin afresh: replace the tables of an earlier run by empty ones."""
        async with self._transaction():
            for table in TABLES:
                await self._connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in create_tables(_WORDS):
                await self._connection.execute(statement)

    async def write(self, windows: list[Row], top_delays: list[Row]) -> None:
        """Add windows to those that exist, and replace top delays: all or nothing."""
        async with self._transaction():
            await self._connection.executemany(_WRITE_METRICS, windows)
            await self._connection.executemany(_WRITE_TOP_DELAYS, top_delays)

    async def record(self, run: Run) -> None:
        """Say what is in the tables."""
        async with self._transaction():
            await self._connection.execute("DELETE FROM runs")
            await self._connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(run)
            )

    async def rows(self, query: str) -> AsyncIterator[Row]:
        """Return the rows of a query without holding all of them."""
        async with self._connection.execute(query) as cursor:
            while page := await cursor.fetchmany(_PAGE):
                for row in page:
                    yield tuple(row)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        await self._connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            await self._connection.rollback()
            raise
        await self._connection.commit()


def _unusable(path: Path, error: sqlite3.Error) -> Problem:
    return Problem(f"cannot use the SQLite file {path}: {first_line(error)}")
