"""A table of a PostgreSQL server that many processes fill, each epoch exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from batchqueue_async._extras import missing

try:
    import pyarrow  # noqa: F401 - what is imported below needs it
except ModuleNotFoundError as _error:
    raise missing(_error, "a sink for Spark's executors", "spark,postgres") from _error

from ._postgres.connections import BROKEN, PARTING, Connections
from ._postgres.copied_batches import BatchCopier, require_plain
from ._postgres.deadlocks import despite_deadlocks
from ._postgres.fences import PUBLISHED, Fences, lock_epoch, wait_for_others
from ._postgres.left_tables import drop_left
from ._postgres.staged_rows import StagedRows, mark_of
from ._postgres.target import column_types, find_target
from .checks import FromOptions, require_name, require_on_conflict
from .epochs import Epoch
from .names import matched
from .open_attempts import OpenAttempts
from .rows import require_batches, selected
from .staged import (
    Attempt,
    StagedRowsMissing,
    Token,
    columns_of,
    refuse_removed,
    rows_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from asyncpg.transaction import Transaction

    from ._postgres.connections import Connection


@dataclass
class _Open:
    """An attempt that has staged something, with the connection that it holds.

    Its record batches' columns have names, those of the table that they mean others.
    """

    connection: Connection
    transaction: Transaction
    copier: BatchCopier
    names: list[str]
    columns: list[str]
    rows: int = 0


class PostgresStagedSink(FromOptions):
    """Stages record batches in PostgreSQL and publishes an epoch in one transaction.

    Why it is exactly once: an attempt is one transaction of COPYs into a staging table,
    so a killed one leaves no row. `publish` locks the epoch, looks for its fence, moves
    the rows of exactly the attempts that its tokens name into the table, removes all
    others, adds the fence, and commits that as one transaction. An attempt registers
    before its first row and finds itself struck off when it seals too late.

    What it costs: rows are written twice, first by COPY into an unlogged table, in
    parallel, then by one INSERT on the server, which doesn't scale out. Columns of
    numbers, texts, bytes, booleans, dates and timestamps that have the table's own
    types go to COPY in its binary form, others (a BIGINT for an INTEGER, a DECIMAL) as
    CSV, which is several times slower.

    The staging table has no key and no index, so each publish reads all of it. Above
    8 MiB it is emptied at the end of an epoch, with TRUNCATE, if no other epoch is on
    its way; else the epoch's rows are deleted. So what drivers staged that died for
    good, and epochs of other queries into the same table, make a publish slower.

    If the server crashes in between, the staged rows are gone; `publish` counts them,
    raises `StagedRowsMissing`, and the epoch has to run again. A process that stages
    holds one connection, in a transaction for as long as its task brings rows, whatever
    the database's `idle_in_transaction_session_timeout`; a pooler such as PgBouncer may
    share it with others, in transaction mode, too. One small row per published epoch
    stays. Attempts whose driver died for good go after 7 days, with the next `publish`
    into the table.

    Record batches' columns are matched by name, in whatever case of letters where that
    has one meaning. The table must exist; `<table>_staged`, `batchqueue_attempts` and
    `batchqueue_published` are made beside it when they are missing, which takes the
    right to create tables there. If the table's columns change, the next attempt makes
    `<table>_staged` anew. Fences know a table by its name and oid: they count for one
    that was renamed, and not for one that was dropped and made again, of which a
    warning tells. Those of earlier versions count by name.

    Args:
        url: The server and the database: `postgresql://...`.
        table: Where rows go; as for `PostgresEpochSink`.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING".
        timeout: Seconds to wait for a connection.
        statement_timeout: Seconds that a statement may take, as the server counts them;
            a moment later the sink gives a server up that stands still. The longest
            is the INSERT of a whole epoch.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind, or has a wrong value.
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
        require_name("table", table)
        require_on_conflict(on_conflict)
        # As messages name it.
        self.target: str = f"table {table}"
        self._table = table
        self._on_conflict = on_conflict
        self._fences = Fences(PUBLISHED)
        self._connections = Connections(url, timeout, statement_timeout, self._prepare)
        self._attempts = OpenAttempts[_Open]()

    async def announce(self, epoch: Epoch, run: str, /) -> None:
        """Register the run, so that what comes after its end is refused."""
        # On the disk: after a crash that forgot it each try of each task is refused.
        async with self._connections.transaction() as connection:
            await self._staged.announce(connection, epoch, run)

    async def stage(self, attempt: Attempt, items: list[pa.RecordBatch], /) -> None:
        """Copy the rows in the attempt's transaction.

        Raises:
            BatchQueueError: The run was announced, and is over.
            TypeError: An item is no record batch, or a column of a type that can't be
                copied.
            ValueError: The table has no such column, or the attempt's record batches
                have other ones, or the server refuses `on_conflict`.
        """
        with self._attempts.staging(attempt) as known, self._connections.errors():
            require_batches(items)
            if not items:
                return
            if known is None:
                require_plain(items[0].schema)
            current = known or await self._begin(attempt, items[0].schema.names)
            batches = [
                selected(batch, current.names).rename_columns(current.columns)
                for batch in items
            ]
            # On a thread, since a wide batch would hold the loop up.
            mark = mark_of(attempt.name)
            copies = await to_thread.run_sync(current.copier.copies, batches, mark)
            for copied in copies:
                async with self._connections.copying(current.connection):
                    await copied.copy(current.connection, self._staged.staging)
                current.rows += len(copied)

    async def seal(self, attempt: Attempt, /) -> Token:
        """Commit the attempt's transaction, unless the epoch is published.

        Raises:
            BatchQueueError: The run was discarded, or the attempt was struck off.
        """
        current = self._attempts.get(attempt)
        if current is None:
            return Token(attempt, 0)
        epoch, connection = attempt.epoch, current.connection
        with self._connections.errors():
            await self._connections.keep_moving(connection)
            await lock_epoch(connection, self._target, epoch, is_shared=True)
            is_over = await self._fences.has(connection, epoch)
            if is_over or not await self._staged.has(connection, attempt):
                (self._attempts.forget if is_over else self._attempts.end)(attempt)
                await self._undo(attempt, current)
                if not is_over:
                    refuse_removed(attempt)
                return Token(attempt, 0)
            await current.transaction.commit()
        self._attempts.end(attempt)
        self._connections.give_back(connection)
        return Token(attempt, current.rows, "\0".join(current.columns))

    async def abandon(self, attempt: Attempt, /) -> None:
        """Roll the attempt's transaction back, and strike it off."""
        current = self._attempts.end(attempt)
        if current is not None:
            await self._undo(attempt, current)

    async def _undo(self, attempt: Attempt, current: _Open) -> None:
        leave = self._connections.end  # rolls back, too
        try:
            # If this fails, `publish` or `discard` will strike the attempt off.
            with suppress(*BROKEN):
                async with asyncio.timeout(PARTING):
                    await current.transaction.rollback()
                    async with self._connections.within(current.connection):
                        await self._staged.strike_off(current.connection, attempt)
                leave = self._connections.give_back
        finally:
            leave(current.connection)

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        """Move the rows and add the fence in one transaction."""
        tokens = [*tokens]  # a generator would be empty the second time
        return await despite_deadlocks(lambda: self._publish_once(epoch, tokens))

    async def _publish_once(self, epoch: Epoch, tokens: list[Token]) -> bool:
        rows = rows_of(epoch, tokens)
        full = [token for token in tokens if token.rows]
        async with self._connections.transaction() as connection:
            await lock_epoch(connection, self._target, epoch)
            is_new = not await self._fences.has_own(connection, epoch)
            # Waits for a driver of an earlier version that adds the same one: it locks
            # the epoch by its table's spelling.
            is_new = is_new and await self._fences.add(connection, epoch, rows)
            if is_new and full:
                marks = [mark_of(token.attempt.name) for token in full]
                found = await self._staged.staging.publish(
                    connection, marks, columns_of(full), self._on_conflict, rows
                )
                if found != rows:  # the transaction is undone
                    raise StagedRowsMissing(epoch, rows, found)
            await self._staged.clear(connection, epoch)
            # A query may have come from the other kind of sink, killed there.
            await drop_left(connection, self._target, epoch)
        return is_new

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        """Strike the run's attempts off and delete their rows."""
        async with self._connections.transaction() as connection:
            await lock_epoch(connection, self._target, epoch)
            await self._staged.clear(connection, epoch, run)

    async def is_published(self, epoch: Epoch, /) -> bool:
        """Return whether the fence is there."""
        async with self._connections.transaction() as connection:
            if is_there := await self._fences.has(connection, epoch):
                await wait_for_others(connection)
        return is_there

    async def close(self) -> None:
        """Close the connections; the server undoes unsealed attempts."""
        self._connections.close()
        while self._attempts.end_any() is not None:
            pass

    async def _prepare(self, connection: Connection) -> None:
        async with self._connections.within(connection):
            target = await find_target(connection, self._table)
            await self._fences.prepare(connection, target)
        staged = StagedRows(target)
        # Apart, since it may wait for attempts, and those for what is locked above.
        async with self._connections.within(connection):
            await staged.prepare(connection)
        self._target, self._staged = target, staged

    async def _begin(self, attempt: Attempt, names: list[str]) -> _Open:
        connection = await self._connections.take()
        try:
            # Apart from what waits for a lock of the epoch, whose holder may wait for
            # the staging table.
            async with self._connections.within(connection):
                known = await self._staged.columns(connection)
                exact = attempt.is_case_sensitive
                columns = matched(names, known, self.target, exact=exact)
                await self._staged.bring_up(connection)
                staging = self._staged.staging
                await staging.require_insert(connection, columns, self._on_conflict)
            # A transaction of its own, so that a `discard` finds the attempt.
            async with self._connections.within(connection):
                await self._staged.register(connection, attempt)
            transaction = await self._connections.begin(connection)
            # Until the transaction ends nobody can make it anew with other types.
            await staging.lock(connection)
            types = await column_types(connection, staging.place)
        except BaseException:
            self._connections.end(connection)
            raise
        copier = BatchCopier(staging.mark, types)
        made = _Open(connection, transaction, copier, names, columns)
        self._attempts[attempt] = made
        return made
