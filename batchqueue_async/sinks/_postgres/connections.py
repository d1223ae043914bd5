"""Connections to a PostgreSQL server, none of which waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from ..checks import require_seconds
from .errors import without_values

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

# Seconds for what a server that works does at once: to undo, to say that it is there.
PARTING = 5.0
# Seconds without use after which a server may be gone, and nobody was told.
_IDLE = 1.0
# Milliseconds that the server can count, three weeks.
_MOST = 2**31 - 1


class Limits:
    """How long a statement may take, as the server and as the client see it.

    The server ends a statement itself, and undoes it. If it doesn't, because it stands
    still or is out of reach, the client stops waiting a moment later.

    Args:
        statement_timeout: Seconds.

    Raises:
        TypeError: It is no number.
        ValueError: It isn't finite, or not above zero.
    """

    def __init__(self, statement_timeout: float) -> None:
        require_seconds("statement_timeout", statement_timeout)
        self._seconds = statement_timeout
        self.answer = statement_timeout + PARTING / 2

    @property
    def milliseconds(self) -> str:
        """The limit as the server takes it, which takes 0 for none."""
        return str(min(max(1, round(self._seconds * 1000)), _MOST))

    def copying(self) -> asyncio.Timeout:
        """Bound a COPY, of which asyncpg watches the answer, not the way there."""
        return asyncio.timeout(self.answer)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say in a TimeoutError of asyncpg's, which says nothing, what it is about."""
        try:
            yield
        except TimeoutError as error:
            if not error.args:
                told = (
                    f"the server did not answer within {self._seconds:g} s"
                    " (statement_timeout); whether it did what was asked is unknown"
                )
                error.args = (told,)
            raise


class Connections:
    """Makes connections and keeps those that were given back, without a task behind it.

    It belongs to the loop that uses it first.

    Args:
        url: The server and the database.
        timeout: Seconds until a connection that is not made fails.
        limits: How long a statement may take.
        prepare: Awaited with the first connection, before it is handed out.
        most: How many are lent at a time; None for no bound.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        limits: Limits,
        prepare: Callable[[Connection], Awaitable[None]],
        most: int | None = None,
    ) -> None:
        self._url = url
        self._timeout = timeout
        self.limits = limits
        self._prepare = prepare
        self._is_prepared = False
        self._bound = nullcontext() if most is None else asyncio.Semaphore(most)
        # With the time since when each is idle.
        self._idle: list[tuple[Connection, float]] = []
        self._taken: list[Connection] = []

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """Lend one for a `with` block, and keep it afterwards.

        If the block raises, or is cancelled, the connection is ended: nobody knows what
        it was in the middle of.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone; a TimeoutError: it doesn't answer.
        """
        async with self._bound:
            connection = await self.take()
            try:
                with self.errors():
                    yield connection
            except BaseException:
                self.end(connection)
                raise
            self.give_back(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend one in a transaction that waits for the disk; an error undoes it.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone; a TimeoutError: it doesn't answer.
        """
        async with self.lent() as connection:
            # What others commit while this one waits for a lock must be seen.
            transaction = connection.transaction(isolation="read_committed")
            await transaction.start()
            try:
                # A client that stands still would hold its locks for ever.
                await connection.execute(
                    "SET LOCAL synchronous_commit = on; SET LOCAL"
                    f" idle_in_transaction_session_timeout = {self.limits.milliseconds}"
                )
                yield connection
            except BaseException:
                # The connection's end undoes it, too, but stops no statement at work.
                with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    await undo(transaction)
                raise
            await transaction.commit()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Let what the server says tell what it is about, and no values of rows."""
        with self.limits.told(), without_values():
            yield

    async def take(self) -> Connection:
        """Return a connection that works; the caller gives it back, or ends it.

        Raises:
            asyncpg.PostgresError: The server refuses.
            OSError: The server is gone.
        """
        while self._idle:
            connection, since = self._idle.pop()
            self._taken.append(connection)
            if await self._works(connection, since):
                return connection
        connection = await self._connect()
        self._taken.append(connection)
        try:
            with self.errors():
                # Who needs the disk says so; staged rows are counted before their use.
                await connection.execute(
                    "SET synchronous_commit = off;"
                    f" SET statement_timeout = {self.limits.milliseconds}"
                )
                if not self._is_prepared:
                    await self._prepare(connection)
                    self._is_prepared = True
        except BaseException:
            self.end(connection)
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep it for the next one; after `close` there is nothing to keep it for."""
        if connection in self._taken:
            self._taken.remove(connection)
            self._idle.append((connection, asyncio.get_running_loop().time()))

    def end(self, connection: Connection) -> None:
        """End one that was taken; the server undoes what is open."""
        connection.terminate()
        if connection in self._taken:
            self._taken.remove(connection)

    def close(self) -> None:
        """End all of them; the server undoes what is open. The next call opens others.

        Those at work are ended, too.
        """
        for connection in (*(each for each, _ in self._idle), *self._taken):
            connection.terminate()
        self._idle.clear()
        self._taken.clear()
        self._is_prepared = False

    async def _connect(self) -> Connection:
        why = ""
        try:
            return await asyncpg.connect(
                self._url, timeout=self._timeout, command_timeout=self.limits.answer
            )
        except ValueError as error:
            why = type(error).__name__
        # Not in the `except`: the error quotes the URL.
        msg = (
            "url must be a URL that asyncpg takes, postgresql://..., got one that it"
            f" refuses with a {why}; characters like /, @, : and # in a password must"
            " be percent-encoded"
        )
        raise ValueError(msg)

    async def _works(self, connection: Connection, since: float) -> bool:
        if connection.is_closed():
            self.end(connection)
            return False
        if asyncio.get_running_loop().time() < since + _IDLE:
            return True
        try:
            await connection.execute("SELECT 1", timeout=PARTING)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.end(connection)
            return False
        except BaseException:
            self.end(connection)
            raise
        return True


async def undo(transaction: Transaction) -> None:
    """Roll back, if the server still works.

    Raises:
        asyncpg.PostgresError: The server refuses.
        OSError: The server is gone; a TimeoutError: it doesn't answer.
    """
    async with asyncio.timeout(PARTING):
        await transaction.rollback()
