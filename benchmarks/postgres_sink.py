"""A PostgreSQL sink for benchmarks: rows of a log, as a service would write them.

The server runs beside the benchmark, so each call waits for `NETWORK` in it, as it
would for a network and for a disk; all else is what it takes.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from tests.support.postgres import find_binaries, running_server

NETWORK = 0.01
MESSAGE = json.dumps({"message": "x" * 200, "tags": [*range(10)]})
_TABLE = "CREATE TABLE log (at FLOAT8, level TEXT, message JSONB)"
_INSERT = "INSERT INTO log VALUES ($1, $2, $3)"


class PostgresSink:
    """Inserts times of arrival, each with a message, on a connection of a pool."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.network = NETWORK

    async def consume(self, batch: list[float]) -> None:
        """Write a batch in one transaction."""
        rows = [(at, "INFO", MESSAGE) for at in batch]
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(f"SELECT pg_sleep({self.network})")
            await connection.executemany(_INSERT, rows)

    async def clear(self) -> None:
        """Delete the rows, so that one run is as good as the next."""
        await self._pool.execute("TRUNCATE log")


@asynccontextmanager
async def postgres_sink(connections: int) -> AsyncIterator[PostgresSink]:
    """Start a server with an empty table, and connect."""
    binaries = find_binaries()
    if binaries is None:
        message = "needs PostgreSQL: no initdb and pg_ctl on this machine"
        raise SystemExit(message)
    with running_server(binaries) as dsn:
        async with asyncpg.create_pool(
            dsn, min_size=connections, max_size=connections
        ) as pool:
            await pool.execute(_TABLE)
            await pool.execute("CREATE INDEX ON log (at)")
            yield PostgresSink(pool)
