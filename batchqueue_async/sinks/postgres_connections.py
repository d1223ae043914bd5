"""Connections to a PostgreSQL server that are kept while nobody uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg

from .postgres_errors import without_values
from .postgres_limits import Limits, refused_url


class PostgresConnections:
    """Makes connections and keeps those that were given back.

    Not a pool: there is no bound and no task behind it. One that was kept is asked
    whether its server is still there before it is used again.

    Args:
        url: The server and the database.
        timeout: Seconds to wait for a connection.
        limits: How long a statement may take.
        prepare: Awaited with the first connection, before it is handed out.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        limits: Limits,
        prepare: Callable[[asyncpg.Connection], Awaitable[None]],
    ) -> None:
        self._url = url
        self._timeout = timeout
        self.limits = limits
        self._prepare = prepare
        self._is_prepared = False
        self._idle: list[asyncpg.Connection] = []
        self._taken: list[asyncpg.Connection] = []

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[asyncpg.Connection]:
        """Lend one for a `with` block, and keep it afterwards.

        If the block raises, or is cancelled, the connection is ended: nobody knows what
        it was in the middle of.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone.
        """
        connection = await self.take()
        try:
            with self.limits.told(), without_values():
                yield connection
        except BaseException:
            self.end(connection)
            raise
        self.give_back(connection)

    async def take(self) -> asyncpg.Connection:
        """Return a connection that works; the caller gives it back, or ends it.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone.
        """
        while self._idle:
            connection = self._idle.pop()
            self._taken.append(connection)
            if await self._answers(connection):
                return connection
        connection = await self._connect()
        self._taken.append(connection)
        if not self._is_prepared:
            try:
                await self._prepare(connection)
            except BaseException:
                self.end(connection)
                raise
            self._is_prepared = True
        return connection

    def give_back(self, connection: asyncpg.Connection) -> None:
        """Keep it for the next one; after `close` there is nothing to keep it for."""
        if connection in self._taken:
            self._taken.remove(connection)
            self._idle.append(connection)

    def end(self, connection: asyncpg.Connection) -> None:
        """End one that was taken; the server undoes what is open."""
        connection.terminate()
        if connection in self._taken:
            self._taken.remove(connection)

    def close(self) -> None:
        """End all of them; the server undoes what is open."""
        for connection in (*self._idle, *self._taken):
            connection.terminate()
        self._idle.clear()
        self._taken.clear()

    async def _connect(self) -> asyncpg.Connection:
        # Who needs the disk says so; staged rows are counted before they are used.
        settings = {
            "synchronous_commit": "off",
            "statement_timeout": self.limits.milliseconds,
        }
        refusal = None
        try:
            return await asyncpg.connect(
                self._url,
                timeout=self._timeout,
                command_timeout=self.limits.answer,
                server_settings=settings,
            )
        except ValueError as error:
            refusal = refused_url("url", error)
        raise refusal  # not in the `except`: the error quotes the URL

    async def _answers(self, connection: asyncpg.Connection) -> bool:
        try:
            await connection.execute("SELECT 1", timeout=5)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.end(connection)
            return False
        except BaseException:
            self.end(connection)
            raise
        return True
