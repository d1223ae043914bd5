"""A real server as the sink: PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import astuple
from typing import Self
from urllib.parse import urlsplit

import asyncpg

from .database import Row, Run
from .problems import Problem, first_line
from .schema import TABLES, Dialect, combine_metrics, create_tables, replace_top_delays

# A schema of its own: `reset` drops tables, and must not drop anyone else's.
_SCHEMA = "flights_demo"
_WORDS = Dialect('TEXT COLLATE "C"', "LEAST", "GREATEST")
# Arrays instead of a statement per row: one round trip for the whole batch.
_WRITE_METRICS = (
    "INSERT INTO metrics SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[],"
    " $4::BIGINT[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[], $8::BIGINT[])"
    + combine_metrics(_WORDS)
)
_WRITE_TOP_DELAYS = (
    "INSERT INTO top_delays SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[],"
    " $3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::TEXT[], $7::BIGINT[],"
    " $8::TEXT[], $9::TEXT[])" + replace_top_delays()
)
_PAGE = 10_000


class PostgresDatabase:
    """A connection to a PostgreSQL server."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect to the server that the URL names."""
        try:
            connection = await asyncpg.connect(
                url, timeout=10, server_settings={"search_path": _SCHEMA}
            )
        except (OSError, ValueError, asyncpg.PostgresError) as error:
            server = urlsplit(url).hostname or "the server"
            msg = f"cannot connect to PostgreSQL at {server}: {first_line(error)}"
            raise Problem(msg) from error
        except asyncpg.InterfaceError as error:
            msg = f"not a usable PostgreSQL URL: {first_line(error)}"
            raise Problem(msg) from error
        return cls(connection)

    async def reset(self) -> None:
        """Begin afresh: replace the tables of an earlier run by empty ones."""
        try:
            async with self._connection.transaction():
                await self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
                for table in TABLES:
                    await self._connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in create_tables(_WORDS):
                    await self._connection.execute(statement)
        except asyncpg.PostgresError as error:
            msg = f"cannot create tables in PostgreSQL: {first_line(error)}"
            raise Problem(msg) from error

    async def write(self, windows: list[Row], top_delays: list[Row]) -> None:
        """Add windows to those that exist, and replace top delays: all or nothing."""
        async with self._connection.transaction():
            if windows:
                await self._connection.execute(_WRITE_METRICS, *_columns(windows))
            if top_delays:
                await self._connection.execute(_WRITE_TOP_DELAYS, *_columns(top_delays))

    async def record(self, run: Run) -> None:
        """Say what is in the tables."""
        async with self._connection.transaction():
            await self._connection.execute("DELETE FROM runs")
            await self._connection.execute(
                "INSERT INTO runs VALUES ($1, $2, $3, $4, $5, $6, $7)", *astuple(run)
            )

    async def rows(self, query: str) -> AsyncIterator[Row]:
        """Return the rows of a query without holding all of them."""
        async with self._connection.transaction():
            async for record in self._connection.cursor(query, prefetch=_PAGE):
                yield tuple(record)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def _columns(rows: list[Row]) -> list[Row]:
    return list(zip(*rows, strict=True))
