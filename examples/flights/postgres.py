"""A real server as the sink: PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Self

import asyncpg

from batchqueue_async.sinks import Epoch

from .combining import KNOWN_TOP_DELAYS, days_of, ranked_anew
from .database import Partials, Row, Run
from .problems import Problem, first_line
from .schema import (
    Dialect,
    combine_metrics,
    create_tables,
    drop_tables,
    replace_top_delays,
)

# A schema of its own: `reset` drops tables, and must not drop anyone else's.
SCHEMA = "flights_demo"
WORDS = Dialect('TEXT COLLATE "C"', "LEAST", "GREATEST")
# Arrays instead of a statement per row: one round trip for the whole batch.
_WRITE_METRICS = (
    "INSERT INTO metrics SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[],"
    " $4::BIGINT[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[], $8::BIGINT[])"
    + combine_metrics(WORDS)
)
_WRITE_TOP_DELAYS = (
    "INSERT INTO top_delays SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[],"
    " $3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::TEXT[], $7::BIGINT[],"
    " $8::TEXT[], $9::TEXT[])" + replace_top_delays()
)
_WRITE_CANCELLATIONS = (
    "INSERT INTO cancellations SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[],"
    " $3::TEXT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[])"
)
_ADD_FENCE = "INSERT INTO epochs VALUES ($1, $2) ON CONFLICT DO NOTHING"
_PAGE = 10_000
# Rows per statement: the client encodes them on the event loop, which must run in
# between, since threads that wait for it give up after half a second.
_ROWS = 1_000


class PostgresDatabase:
    """A `Database` on a PostgreSQL server."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect to the server that the URL names."""
        with _told_in_a_line():
            settings = {"search_path": SCHEMA, "application_name": "flights demo"}
            connection = await asyncpg.connect(
                url, timeout=10, server_settings=settings
            )
        return cls(connection)

    async def reset(self) -> None:
        with _told_in_a_line():
            async with self._connection.transaction():
                await self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
                for statement in (*drop_tables(), *create_tables(WORDS)):
                    await self._connection.execute(statement)

    async def write(self, windows: list[Row], top_delays: list[Row]) -> None:
        with _told_in_a_line():
            async with self._connection.transaction():
                await self._execute(_WRITE_METRICS, windows)
                await self._execute(_WRITE_TOP_DELAYS, top_delays)

    async def write_epoch(self, epoch: Epoch, partials: Partials) -> None:
        with _told_in_a_line():
            async with self._connection.transaction():
                # A second process with the same epoch waits here for the first.
                added = await self._connection.execute(_ADD_FENCE, *astuple(epoch))
                if added == "INSERT 0 0":
                    return
                known = await self._connection.fetch(
                    f"{KNOWN_TOP_DELAYS} $1 AND $2", *days_of(partials)
                )
                ranked = ranked_anew(map(tuple, known), partials)
                await self._execute(_WRITE_METRICS, partials.windows)
                await self._execute(_WRITE_TOP_DELAYS, ranked)
                await self._execute(_WRITE_CANCELLATIONS, partials.cancellations)

    async def has_epoch(self, epoch: Epoch) -> bool:
        query = "SELECT 1 FROM epochs WHERE query = $1 AND batch = $2"
        with _told_in_a_line():
            found = await self._connection.fetchval(query, *astuple(epoch))
        return found is not None

    async def record(self, run: Run) -> None:
        with _told_in_a_line():
            async with self._connection.transaction():
                await self._connection.execute("DELETE FROM runs")
                await self._connection.execute(
                    "INSERT INTO runs VALUES ($1, $2, $3, $4, $5, $6, $7)",
                    *astuple(run),
                )

    async def rows(self, query: str) -> AsyncIterator[Row]:
        with _told_in_a_line():
            async with self._connection.transaction():
                async for record in self._connection.cursor(query, prefetch=_PAGE):
                    yield tuple(record)

    async def close(self) -> None:
        await self._connection.close()

    async def _execute(self, statement: str, rows: list[Row]) -> None:
        for start in range(0, len(rows), _ROWS):
            columns = zip(*rows[start : start + _ROWS], strict=True)
            await self._connection.execute(statement, *columns)


@contextmanager
def _told_in_a_line() -> Iterator[None]:
    try:
        yield
    except (
        OSError,
        ValueError,
        asyncpg.InterfaceError,
        asyncpg.PostgresError,
    ) as error:
        # Without the URL, which may hold a password.
        msg = f"PostgreSQL cannot be used: {first_line(error)}"
        raise Problem(msg) from error
