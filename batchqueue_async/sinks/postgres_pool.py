"""A pool of connections to a PostgreSQL server that is made when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from .postgres_errors import without_values
from .postgres_limits import PARTING, Limits, refused_url

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.transaction import Transaction

    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]


class PostgresPool:
    """Belongs to the loop that uses it first. Nothing in it waits for ever.

    Args:
        dsn: The server and the database, as a URL.
        size: How many connections it opens at most.
        patience: Seconds until a connection that is not made fails.
        limits: How long a statement may take.
        prepare: Awaited once, before anything else.
    """

    def __init__(
        self,
        dsn: str,
        size: int,
        patience: float,
        limits: Limits,
        prepare: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._dsn = dsn
        self._size = size
        self._patience = patience
        self._limits = limits
        self._prepare = prepare
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; waits while all are lent.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone; a TimeoutError: it doesn't answer.
        """
        pool = await self._open()
        async with self._lent(pool) as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection in a transaction, which a `with` block that raises undoes.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone; a TimeoutError: it doesn't answer.
        """
        async with self.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            except BaseException:
                await _undo(connection, transaction)
                raise
            await transaction.commit()

    async def close(self) -> None:
        """Close all connections; the next call opens others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            is_busy = pool.get_idle_size() < pool.get_size()
            limit = self._limits.answer + PARTING if is_busy else PARTING
            with suppress(TimeoutError):  # it has terminated them by then
                async with asyncio.timeout(limit):
                    await pool.close()

    @asynccontextmanager
    async def _lent(
        self, pool: asyncpg.Pool[asyncpg.Record]
    ) -> AsyncIterator[Connection]:
        refusal = None
        try:
            connection = await pool.acquire()
        except ValueError as error:
            refusal = refused_url("dsn", error)
        if refusal is not None:  # not in the `except`: the error quotes the URL
            raise refusal
        try:
            with self._limits.told(), without_values():
                await connection.execute(
                    self._limits.statement,
                    timeout=min(self._patience, self._limits.answer),
                )
                yield connection
        finally:
            # One that does not answer is terminated by it.
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await pool.release(connection, timeout=PARTING)

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        async with self._opening:
            if self._pool is None:
                pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=self._size,
                    timeout=self._patience,
                    command_timeout=self._limits.answer,
                )
                try:
                    async with self._lent(pool) as connection:
                        await self._prepare(connection)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool = pool
            return self._pool


async def _undo(connection: Connection, transaction: Transaction) -> None:
    """Roll back; a server that doesn't answer does so when it finds its client gone."""
    try:
        async with asyncio.timeout(PARTING):
            await transaction.rollback()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
    except BaseException:
        connection.terminate()
        raise
