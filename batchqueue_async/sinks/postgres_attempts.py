"""The attempts that one process stages in PostgreSQL, each in its own transaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, UUID, uuid5

import asyncpg
from anyio import to_thread

from batchqueue_async import BatchQueueError

from .csv_rows import csv_rows
from .epochs import Epoch
from .postgres_connections import PostgresConnections
from .postgres_limits import PARTING
from .postgres_staged_statements import KEY, StagedStatements
from .postgres_staged_tables import StagedTables
from .staged import Attempt, Token

if TYPE_CHECKING:
    import pyarrow as pa
    from asyncpg.transaction import Transaction


@dataclass
class _Open:
    """An attempt that has staged something, with the connection that it holds."""

    connection: asyncpg.Connection
    transaction: Transaction
    columns: list[str]
    rows: int = field(default=0)


class PostgresAttempts:
    """What runs on executors: rows are copied, then sealed or abandoned.

    Args:
        connections: Where each attempt takes one from, until it ends.
    """

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections
        self._open: dict[str, _Open] = {}

    def prepare(self, sql: StagedStatements, tables: StagedTables) -> None:
        """Say what the server is told, before the first connection is handed out."""
        self._sql = sql
        self._tables = tables

    async def stage(self, attempt: Attempt, batches: list[pa.RecordBatch]) -> None:
        """Copy rows; the first ones register the attempt."""
        current = self._open.get(attempt.name)
        if current is None:
            current = await self._begin(attempt, list(batches[0].schema.names))
        # Off the loop: a wide batch takes a while.
        source = await to_thread.run_sync(csv_rows, batches, str(UUID(attempt.name)))
        async with self._connections.limits.copying():
            await current.connection.copy_to_table(
                self._sql.staging_name,
                schema_name=self._sql.target.schema,
                columns=[KEY, *current.columns],
                source=source,
                format="csv",
            )
        current.rows += sum(batch.num_rows for batch in batches)

    async def seal(self, attempt: Attempt) -> Token:
        """Commit, unless the epoch is over for this attempt."""
        current = self._open.get(attempt.name)
        if current is None:
            return Token(attempt, 0)
        epoch, connection = attempt.epoch, current.connection
        await self._share(connection, epoch)
        is_known = await connection.fetchval(
            self._sql.is_registered, UUID(attempt.name)
        )
        if not is_known or await self._tables.has_fence(connection, epoch):
            await self.abandon(attempt)
            return Token(attempt, 0)
        await current.transaction.commit()
        self._connections.give_back(self._open.pop(attempt.name).connection)
        return Token(attempt, current.rows, "\0".join(current.columns))

    async def abandon(self, attempt: Attempt) -> None:
        """Roll back, and strike the attempt off; unknown ones are fine."""
        current = self._open.pop(attempt.name, None)
        if current is None:
            return
        try:
            async with asyncio.timeout(PARTING):
                await current.transaction.rollback()
                await current.connection.execute(self._sql.forget, UUID(attempt.name))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            # Rolls back, too. `publish` or `discard` strikes it off.
            self._connections.end(current.connection)
        except BaseException:
            self._connections.end(current.connection)
            raise
        else:
            self._connections.give_back(current.connection)

    def clear(self) -> None:
        """Forget what is open; whoever ends the connections undoes it."""
        self._open.clear()

    async def _begin(self, attempt: Attempt, columns: list[str]) -> _Open:
        connection = await self._connections.take()
        try:
            # Before the attempt's own transaction, so that a `discard` finds it.
            await self._register(connection, attempt)
            transaction = connection.transaction(isolation="read_committed")
            await transaction.start()
        except BaseException:
            self._connections.end(connection)
            raise
        current = _Open(connection, transaction, columns)
        self._open[attempt.name] = current
        return current

    async def _register(self, connection: asyncpg.Connection, attempt: Attempt) -> None:
        epoch = attempt.epoch
        key = (self._sql.target.key, epoch.query, epoch.batch)
        entry = (*key, attempt.run, UUID(attempt.name))
        if not attempt.is_announced:
            await connection.execute(self._sql.register, *entry)
            return
        # The lock comes first: what an end of the run has committed must be seen.
        async with connection.transaction(isolation="read_committed"):
            await self._share(connection, epoch)
            done = await connection.execute(
                self._sql.register_announced, *entry, name_of_run(epoch, attempt.run)
            )
        if done == "INSERT 0 0":
            msg = f"{attempt} comes too late: its run was published or discarded"
            raise BatchQueueError(msg)

    async def _share(self, connection: asyncpg.Connection, epoch: Epoch) -> None:
        lock = (self._sql.target.place, epoch.query, epoch.batch)
        await connection.execute(self._sql.share_epoch, *lock)


def name_of_run(epoch: Epoch, run: str) -> UUID:
    """Return the name that a run is registered by, among those of attempts."""
    return uuid5(NAMESPACE_OID, f"{epoch.query}\0{epoch.batch}\0{run}")
