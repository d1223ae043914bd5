"""Connections to a PostgreSQL server, none of which waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from batchqueue_async import BatchQueueError
from batchqueue_async._validation import require_positive

from ..checks import require_url
from ..forks import watch_forks
from .copying import copying
from .no_values import take_values_out

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

# Seconds for what a server that works does at once: to undo, to say that it is there.
PARTING = 5.0
# What a connection raises that the server has ended; asyncpg calls it an internal error
# of its own if it learns of that as a call begins.
BROKEN = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# Seconds without use after which a server may be gone, and nobody was told.
_IDLE = 1.0
# Milliseconds that the server can count, three weeks.
_MOST = 2**31 - 1
# Seconds after which a client that can't be reached is gone, or half of the statement's
# time where that is less.
_GONE = 150.0
# For answers that nobody acknowledges. It is Linux's, and known since version 12.
_GIVE_UP = """SELECT set_config('tcp_user_timeout', '{}', true)
    WHERE version() LIKE '%linux%'
        AND current_setting('server_version_num')::INT >= 120000"""
# Since version 17, whatever the database allows others: an attempt waits for its task's
# next rows, and what else takes time has `statement_timeout`.
_AS_LONG_AS_IT_TAKES = """SELECT set_config('transaction_timeout', '0', true)
    WHERE current_setting('transaction_timeout', true) <> '0'"""
# Who asks for more has it, so that standbys show what was committed.
_WAIT_FOR_DISK = """SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') <> 'remote_apply'"""
_WAIT_FOR_NOTHING = "SET LOCAL synchronous_commit = off"


class Connections:
    """Makes connections and keeps those that were given back, without a task behind it.

    The server itself ends a statement that takes too long, and undoes it. If it does
    not, because it stands still or is out of reach, the client stops waiting a moment
    later.

    It belongs to the loop that uses it first, and when that or this is closed to the
    next one. Any other is refused: a connection wakes who waits on its own loop alone.
    Before a connection is handed out `each` is awaited with it, and `prepare` with the
    first, or with the next one after a table was missing. `connections` bounds how many
    are lent at a time.
    """

    def __init__(  # noqa: PLR0913 - all that is said of them
        self,
        url: str,
        timeout: float,
        statement_timeout: float,
        prepare: Callable[[Connection], Awaitable[None]],
        *,
        connections: int | None = None,
        each: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        require_url("url", url)
        require_positive("timeout", timeout)
        require_positive("statement_timeout", statement_timeout)
        self._url = url
        self._timeout = timeout
        self._statement_timeout = statement_timeout
        self._answer = statement_timeout + PARTING / 2
        # The server's form: whole milliseconds, at least 1, since 0 means no timeout.
        self.milliseconds = str(min(max(1, round(statement_timeout * 1000)), _MOST))
        limit = f"statement_timeout = {self.milliseconds}"
        self._watched = limit, *_asking(statement_timeout)
        # Without it a client that stands still would hold its locks.
        self._idle_limit = f"idle_in_transaction_session_timeout = {self.milliseconds}"
        self._give_up = _GIVE_UP.format(
            max(1000, round(_gone(statement_timeout) * 1000))
        )
        self._prepare = prepare
        self._is_prepared = False
        self._each = each
        self._most = connections
        self._bound: AbstractAsyncContextManager[None] = nullcontext()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Whether it was closed, and not used since.
        self._is_free = True
        # Each with the loop's time at which it was given back.
        self._idle: list[tuple[Connection, float]] = []
        self._taken: list[Connection] = []
        watch_forks(self)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """Lend one for a `with` block, and keep it afterwards; see also `within`.

        If the block raises, or is cancelled, the connection is ended: nobody knows what
        it was in the middle of.
        """
        self._move_to_loop()
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
        """Lend one in a transaction, whose commit waits for the disk; see `within`."""
        async with (
            self.lent() as connection,
            self.within(connection, waits_for_disk=True),
        ):
            yield connection

    @asynccontextmanager
    async def within(
        self, connection: Connection, *, waits_for_disk: bool = False
    ) -> AsyncIterator[None]:
        """Begin a transaction, and commit it; an error undoes it.

        Only a commit of fences need wait for the disk: lost staged rows are noticed,
        since they are counted before their use.
        """
        transaction = await self._begun(
            connection,
            _WAIT_FOR_DISK if waits_for_disk else _WAIT_FOR_NOTHING,
            f"SET LOCAL {self._idle_limit}",
        )
        try:
            yield
        except BaseException:
            # To end the connection would undo it, too, but not stop a statement that
            # the server is still executing.
            with suppress(*BROKEN):
                async with asyncio.timeout(PARTING):
                    await transaction.rollback()
            raise
        await transaction.commit()

    async def begin(self, connection: Connection) -> Transaction:
        """Begin one that may stand still, and does not wait for the disk."""
        # Whatever the server allows others: an attempt waits for its task's next rows.
        may_pause = "SET LOCAL idle_in_transaction_session_timeout = 0"
        return await self._begun(connection, _WAIT_FOR_NOTHING, may_pause)

    async def keep_moving(self, connection: Connection) -> None:
        """Let a transaction stand still no more: it will lock what others need."""
        await connection.execute(f"SET LOCAL {self._idle_limit}")

    async def _begun(self, connection: Connection, *statements: str) -> Transaction:
        """Begin a transaction with these statements: settings that the others need.

        They end with it. A pooler may give the server's end of a connection to somebody
        else after each transaction, who would find what was set for the session: no
        waits for the disk, and a timeout. So no statement is outside of a transaction.
        """
        # What others commit while this one waits for a lock must be seen.
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        watched = [f"SET LOCAL {each}" for each in self._watched]
        rest = self._give_up, _AS_LONG_AS_IT_TAKES
        await connection.execute("; ".join([*watched, *statements, *rest]))
        return transaction

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Let what went wrong tell what it is about, and no values of rows."""
        try:
            yield
        except asyncpg.PostgresError as error:
            if isinstance(error, asyncpg.UndefinedTableError):
                # Somebody has dropped the tables: the next call makes them again.
                self._is_prepared = False
            take_values_out(error)
            raise
        except asyncpg.InternalClientError as error:
            error.args = (f"the connection can't be used any more ({error})",)
            raise
        except TimeoutError as error:
            if not error.args:
                told = (
                    f"the server did not answer within {self._statement_timeout:g} s"
                    " (statement_timeout); whether it did what was asked is unknown"
                )
                error.args = (told,)
            raise

    def copying(self, connection: Connection) -> AbstractAsyncContextManager[None]:
        """Bound a COPY as other statements are."""
        return copying(connection, self._answer)

    async def take(self) -> Connection:
        """Return a connection that works; the caller gives it back, or ends it."""
        self._move_to_loop()
        connection = await self._kept() or await self._made()
        if not self._is_prepared:
            try:
                with self.errors():
                    await self._prepare(connection)
            except BaseException:
                self.end(connection)
                raise
            self._is_prepared = True
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

        Those at work are ended, too. On another loop, where nothing would wake who
        waits for their answers, this is refused.
        """
        if not self._is_free and self._loop is not None and self._loop.is_running():
            self._require_loop(self._loop)
        for connection in (*(each for each, _ in self._idle), *self._taken):
            # Raised by the transport where its loop is closed.
            with suppress(RuntimeError):
                connection.terminate()
        self._idle.clear()
        self._taken.clear()
        self._is_prepared = False
        self._is_free = True

    def leave_to_parent(self) -> list[object]:
        """Forget the connections: to end one stops the parent's loop listening to it.

        The two loops share what they wait with, such as epoll's table.
        """
        connections = [*(each for each, _ in self._idle), *self._taken]
        self._idle, self._taken = [], []
        loop, self._loop = self._loop, None
        self._is_prepared, self._is_free = False, True
        return [*connections, loop]

    def _move_to_loop(self) -> None:
        """Let go of what was made on a loop that ended without `close`.

        Raises:
            BatchQueueError: Another loop uses it.
        """
        loop, last = asyncio.get_running_loop(), self._loop
        if last is loop:
            self._is_free = False
            return
        if last is not None and not (self._is_free or last.is_closed()):
            self._require_loop(last)
        self.close()
        self._loop, self._is_free = loop, False
        if self._most is not None:
            # A semaphore stays with the loop on which somebody waited for it.
            self._bound = asyncio.Semaphore(self._most)

    def _require_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not asyncio.get_running_loop():
            msg = (
                "a PostgreSQL sink has connections on another event loop, which is not"
                " closed: make a sink for each loop, such as for each LoopThread"
            )
            raise BatchQueueError(msg)

    async def _kept(self) -> Connection | None:
        """Return a connection that was given back and still works, if there is one."""
        while self._idle:
            connection, since = self._idle.pop()
            self._taken.append(connection)
            if await self._works(connection, since):
                return connection
        return None

    async def _made(self) -> Connection:
        connection = await self._connect()
        self._taken.append(connection)
        try:
            if self._each is not None:
                with self.errors():
                    async with self.within(connection):
                        await self._each(connection)
        except BaseException:
            self.end(connection)
            raise
        return connection

    async def _connect(self) -> Connection:
        why = ""
        try:
            return await asyncpg.connect(
                self._url,
                timeout=self._timeout,
                command_timeout=self._answer,
                # A statement with a name would be unknown to the server's end that a
                # pooler takes next, or another client's.
                statement_cache_size=0,
            )
        except TimeoutError as error:
            if not error.args:
                limit = f"{self._timeout:g} s (timeout)"
                error.args = (f"the server took no connection within {limit}",)
            raise
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
        is_fresh = asyncio.get_running_loop().time() < since + _IDLE
        works = is_fresh and not connection.is_closed()
        try:
            if not (works or connection.is_closed()):
                with suppress(*BROKEN):
                    await connection.execute("SELECT 1", timeout=PARTING)
                    works = True
        finally:
            if not works:
                self.end(connection)
        return works


def _gone(statement_timeout: float) -> float:
    return max(1.0, min(statement_timeout / 2, _GONE))


def _asking(statement_timeout: float) -> tuple[str, str]:
    """Return what makes the server ask whether its client is still there.

    None of its timeouts runs while it waits for more of a COPY, or for the values of a
    statement, which are sent apart. A client that is out of reach then, or whose
    machine is gone, would hold its locks for two hours, and its epoch would wait.
    """
    seconds = _gone(statement_timeout)
    return (
        f"tcp_keepalives_idle = {max(1, round(seconds / 2))}",
        f"tcp_keepalives_interval = {max(1, round(seconds / 6))}",
    )
