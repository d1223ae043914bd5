"""A table of a PostgreSQL server that many processes fill, each epoch exactly once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from uuid import UUID

from .checks import refuse, require_name, require_seconds, require_url, seconds_of
from .epochs import Epoch
from .postgres_attempts import PostgresAttempts, name_of_run
from .postgres_connections import PostgresConnections
from .postgres_errors import without_values
from .postgres_limits import Limits
from .postgres_staged_statements import StagedStatements
from .postgres_staged_tables import StagedTables
from .postgres_target import find_target
from .staged import Attempt, StagedRowsMissing, Token, rows_of

if TYPE_CHECKING:
    import asyncpg
    import pyarrow as pa


class PostgresStagedSink:
    """Stages record batches in PostgreSQL and publishes an epoch in one transaction.

    Why it is exactly once: an attempt is one transaction of COPYs into a staging table,
    so a killed one leaves no row. `publish` locks the epoch, looks for its fence, moves
    the rows of exactly the attempts that its tokens name into the table, removes all
    others, adds the fence, and commits that as one transaction. An attempt registers
    before its first row and finds itself struck off when it seals too late.

    What it costs: rows are written twice, first by COPY into an unlogged table, in
    parallel, then by one INSERT on the server, which is the part that doesn't scale
    out. If the server crashes in between the staged rows are gone; `publish` counts
    them, raises `StagedRowsMissing`, and the epoch has to run again. A process that
    stages holds one connection. One small row per published epoch stays. Attempts whose
    driver died for good go after 7 days, with the next `publish` into the table.

    The columns of the record batches are matched by name. The table must exist; the
    tables `<table>_staged`, `batchqueue_attempts` and `batchqueue_published` are made
    beside it when they are missing, which takes the right to create tables there. After
    adding a column to the table, drop `<table>_staged` while nobody writes.

    Args:
        url: The server and the database: `postgresql://...`.
        table: Where rows go; "schema.table" for one outside of the search path. As it
            is named, or in double quotes as SQL spells it: `t`, `public.t` and
            `public."t"` are one.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING".
        timeout: Seconds to wait for a connection.
        statement_timeout: Seconds that a statement may take, as the server counts them;
            a moment later the sink gives a server up that stands still. The longest
            is the INSERT of a whole epoch.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument has a wrong value.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        on_conflict: str = "",
        timeout: float = 30.0,
        statement_timeout: float = 300.0,
    ) -> None:
        require_url("url", url)
        require_name("table", table)
        require_seconds("timeout", timeout)
        self._table = table
        self._on_conflict = on_conflict
        self._limits = Limits(statement_timeout)
        self._connections = PostgresConnections(
            url, timeout, self._limits, self._prepare
        )
        self._attempts = PostgresAttempts(self._connections)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Make one from the data source's options, which have the arguments' names.

        Spark keeps a `url` out of its logs and pages, so that the password in it is.
        """
        for name in ("url", "table"):
            if name not in options:
                refuse(name, "given as an option", None)
        seconds = {
            name: seconds_of(name, options[name])
            for name in ("timeout", "statement_timeout")
            if name in options
        }
        on_conflict = options.get("on_conflict", "")
        return cls(options["url"], options["table"], on_conflict=on_conflict, **seconds)

    async def announce(self, epoch: Epoch, run: str, /) -> None:
        """Register the run, so that what comes after its end is refused."""
        async with self._connections.lent() as connection:
            entry = (epoch.query, epoch.batch, run, name_of_run(epoch, run))
            await connection.execute(self._sql.register, self._key, *entry)

    async def stage(self, attempt: Attempt, items: list[pa.RecordBatch], /) -> None:
        """Copy the rows in the attempt's transaction.

        Raises:
            BatchQueueError: The run was announced, and is over.
            TypeError: A column is of a type that can't be copied.
            asyncpg.PostgresError: The server refuses, or is gone.
        """
        with self._limits.told(), without_values():
            await self._attempts.stage(attempt, items)

    async def seal(self, attempt: Attempt, /) -> Token:
        """Commit the attempt's transaction, unless the epoch is over for it."""
        with self._limits.told(), without_values():
            return await self._attempts.seal(attempt)

    async def abandon(self, attempt: Attempt, /) -> None:
        """Roll the attempt's transaction back, and strike it off."""
        await self._attempts.abandon(attempt)

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        """Move the rows and add the fence in one transaction.

        Raises:
            StagedRowsMissing: The server has lost staged rows.
            asyncpg.PostgresError: The server refuses, or is gone.
        """
        rows = rows_of(epoch, tokens)
        async with self._locked(epoch) as connection:
            key = (epoch.query, epoch.batch)
            is_new = not await self._tables.has_fence(connection, epoch)
            if is_new:
                await self._move(connection, epoch, [t for t in tokens if t.rows])
                await connection.execute(self._sql.add_fence, self._key, *key, rows)
            keys = self._tables.keys
            over = await connection.fetch(self._sql.forget_epoch, keys, *key)
            await connection.execute(self._sql.clean, [r["name"] for r in over])
        return is_new

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        """Strike the run's attempts off and delete their rows."""
        async with self._locked(epoch) as connection:
            key = (self._tables.keys, epoch.query, epoch.batch, run)
            over = await connection.fetch(self._sql.forget_run, *key)
            await connection.execute(self._sql.clean, [r["name"] for r in over])

    async def is_published(self, epoch: Epoch, /) -> bool:
        """Return whether the fence is there."""
        async with self._connections.lent() as connection:
            return await self._tables.has_fence(connection, epoch)

    async def close(self) -> None:
        """Close the connections; the server undoes unsealed attempts."""
        self._attempts.clear()
        self._connections.close()

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        target = await find_target(connection, self._table)
        tables = StagedTables(target)
        await tables.prepare(connection)
        self._key, self._tables = target.key, tables
        self._sql = StagedStatements(target, tables.staging, self._on_conflict)
        self._attempts.prepare(self._sql, tables)

    @asynccontextmanager
    async def _locked(self, epoch: Epoch) -> AsyncIterator[asyncpg.Connection]:
        """Run a transaction that has the epoch for itself."""
        # What others committed until the lock was there must be seen.
        async with (
            self._connections.lent() as connection,
            connection.transaction(isolation="read_committed"),
        ):
            await connection.execute("SET LOCAL synchronous_commit = on")
            lock = (self._sql.target.place, epoch.query, epoch.batch)
            await connection.execute(self._sql.lock_epoch, *lock)
            yield connection

    async def _move(
        self, connection: asyncpg.Connection, epoch: Epoch, tokens: list[Token]
    ) -> None:
        if not tokens:
            return
        names = [UUID(token.attempt.name) for token in tokens]
        found: int = await connection.fetchval(self._sql.count, names)
        if found != sum(token.rows for token in tokens):
            raise StagedRowsMissing(epoch, sum(t.rows for t in tokens), found)
        columns = tokens[0].place.split("\0")
        await connection.execute(self._sql.publish(columns), names)
