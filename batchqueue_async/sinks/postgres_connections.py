"""Connections to a PostgreSQL server that are kept while nobody uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg


class PostgresConnections:
    """Makes connections and keeps those that were given back.

    Not a pool: there is no bound and no task behind it. One that was kept is asked
    whether its server is still there before it is used again.

    Args:
        url: The server and the database.
        timeout: Seconds to wait for a connection.
        prepare: Awaited with the first connection, before it is handed out.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        prepare: Callable[[asyncpg.Connection], Awaitable[None]],
    ) -> None:
        self._url = url
        self._timeout = timeout
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
        connection = await asyncpg.connect(
            self._url,
            timeout=self._timeout,
            # Who needs the disk says so; staged rows are counted before they are used.
            server_settings={"synchronous_commit": "off"},
        )
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
