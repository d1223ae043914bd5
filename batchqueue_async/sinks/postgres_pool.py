"""A pool of connections to a PostgreSQL server that is made when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]


class PostgresPool:
    """Belongs to the loop that uses it first.

    Args:
        dsn: The server and the database, as a URL.
        size: How many connections it opens at most.
        patience: Seconds until a connection that is not made fails.
        setup: Executed once, before anything else.
    """

    def __init__(self, dsn: str, size: int, patience: float, setup: str) -> None:
        self._dsn = dsn
        self._size = size
        self._patience = patience
        self._setup = setup
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; waits while all are lent.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone.
        """
        pool = await self._open()
        async with pool.acquire() as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection in a transaction, which a `with` block that raises undoes.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone.
        """
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def close(self) -> None:
        """Close all connections; the next call opens others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        async with self._opening:
            if self._pool is None:
                pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=self._size,
                    timeout=self._patience,
                )
                try:
                    await pool.execute(self._setup)
                except BaseException:
                    await pool.close()
                    raise
                self._pool = pool
            return self._pool
