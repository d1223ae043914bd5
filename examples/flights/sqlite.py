"""The default sink: a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Self

import aiosqlite

from batchqueue_async.sinks import Epoch

from .combining import KNOWN_TOP_DELAYS, days_of, ranked_anew
from .database import Partials, Row, Run
from .problems import Problem, first_line
from .schema import (
    METRIC_COLUMNS,
    TOP_COLUMNS,
    Dialect,
    combine_metrics,
    create_tables,
    drop_tables,
    replace_top_delays,
)

WORDS = Dialect("TEXT", "MIN", "MAX", "WITHOUT ROWID")
_WRITE_METRICS = (
    f"INSERT INTO metrics VALUES ({', '.join('?' * len(METRIC_COLUMNS))})"
    + combine_metrics(WORDS)
)
_WRITE_TOP_DELAYS = (
    f"INSERT INTO top_delays VALUES ({', '.join('?' * len(TOP_COLUMNS))})"
    + replace_top_delays()
)
_WRITE_CANCELLATIONS = "INSERT INTO cancellations VALUES (?, ?, ?, ?, ?, ?)"
_PAGE = 10_000


class SqliteDatabase:
    """A `Database` in a SQLite file."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Open the file, or create it."""
        with _told_in_a_line():
            # When aiosqlite fails to open a file, its thread may survive the loop and
            # complain: what cannot be opened is found out without it.
            sqlite3.connect(path).close()
            connection = await aiosqlite.connect(path, isolation_level=None)
            try:
                # Others may read while the demo writes.
                await connection.execute("PRAGMA journal_mode = WAL")
                await connection.execute("PRAGMA synchronous = NORMAL")
                await connection.execute("PRAGMA cache_size = -65536")
            except BaseException:
                await connection.close()
                raise
        return cls(connection)

    async def reset(self) -> None:
        async with self._transaction():
            for statement in (*drop_tables(), *create_tables(WORDS)):
                await self._connection.execute(statement)

    async def write(self, windows: list[Row], top_delays: list[Row]) -> None:
        async with self._transaction():
            await self._connection.executemany(_WRITE_METRICS, windows)
            await self._connection.executemany(_WRITE_TOP_DELAYS, top_delays)

    async def write_epoch(self, epoch: Epoch, partials: Partials) -> None:
        # Spark forgets the epoch afterwards: this time the disk has to have it.
        await self._connection.execute("PRAGMA synchronous = FULL")
        async with self._transaction():
            if await self.has_epoch(epoch):
                return
            execute = self._connection.executemany
            await execute("INSERT INTO epochs VALUES (?, ?)", [astuple(epoch)])
            known = await self._connection.execute_fetchall(
                f"{KNOWN_TOP_DELAYS} ? AND ?", days_of(partials)
            )
            await execute(_WRITE_METRICS, partials.windows)
            await execute(_WRITE_TOP_DELAYS, ranked_anew(map(tuple, known), partials))
            await execute(_WRITE_CANCELLATIONS, partials.cancellations)

    async def has_epoch(self, epoch: Epoch) -> bool:
        query = "SELECT 1 FROM epochs WHERE query = ? AND batch = ?"
        with _told_in_a_line():
            found = await self._connection.execute_fetchall(query, astuple(epoch))
        return bool(found)

    async def record(self, run: Run) -> None:
        async with self._transaction():
            await self._connection.execute("DELETE FROM runs")
            await self._connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(run)
            )

    async def rows(self, query: str) -> AsyncIterator[Row]:
        with _told_in_a_line():
            async with self._connection.execute(query) as cursor:
                while page := await cursor.fetchmany(_PAGE):
                    for row in page:
                        yield tuple(row)

    async def close(self) -> None:
        await self._connection.close()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        with _told_in_a_line():
            # Waits for other writers here, where there is nothing to lose yet.
            await self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                await self._connection.rollback()
                raise
            await self._connection.commit()


@contextmanager
def _told_in_a_line() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        msg = f"SQLite cannot use the database: {first_line(error)}"
        raise Problem(msg) from error
