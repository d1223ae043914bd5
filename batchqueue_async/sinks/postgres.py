"""A table of a PostgreSQL server, each epoch in it exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio import to_thread

from batchqueue_async import BatchQueueError

from .attempts import Attempt, Attempts, prefix
from .checks import require_columns, require_count, require_name
from .epochs import Epoch
from .postgres_pool import PostgresPool
from .postgres_statements import Statements
from .rows import Row, RowReader, python_rows

if TYPE_CHECKING:
    from .postgres_pool import Connection

T = TypeVar("T")

# asyncpg encodes rows on the event loop, which must run in between: whoever waits for
# it on a thread gives it half a second.
_COPIED_AT_ONCE = 5_000


class PostgresEpochSink(Generic[T]):
    """Writes epochs into a table of PostgreSQL, which must exist.

    Why it is exactly once: every attempt has a staging table of its own, which nobody
    reads. `commit` moves its rows into the table and adds a row to the table of fences,
    in one transaction. The fences' primary key is the epoch: of two processes that
    commit the same one, the second waits for the first and then finds its fence.
    What died processes left is dropped when their epoch begins again.

    What it costs: every row is written twice. The first time by COPY into an unlogged
    table, which is cheap; a server that crashes empties it, so `commit` counts the rows
    first. The second time on the server alone, while a commit takes as long as an
    INSERT of the whole epoch. A commit waits for the server's disk, whatever
    `synchronous_commit` says. One small row per epoch stays. It needs the right to make
    tables in the table's schema.

    Items are tuples, lists or mappings of what asyncpg takes, or record batches of
    pyarrow; anything else with `to_row`. It belongs to the loop that uses it first.
    Close it with `close`; a queue whose handler is an `EpochWriter` does that.

    Args:
        dsn: The server and the database, as a URL.
        table: Where rows go; "schema.table" for one outside of the search path.
        columns: The columns of a row, in its order.
        to_row: Makes a row of an item.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING". With
            DO UPDATE an epoch must hold each key once.
        fences: The table of fences, made when it is missing, in the table's schema.
        connections: How many connections it opens at most.
        patience: Seconds until a connection that is not made fails.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument has a wrong value.
    """

    def __init__(  # noqa: PLR0913
        self,
        dsn: str,
        table: str,
        columns: Sequence[str],
        *,
        to_row: Callable[[T], Row] | None = None,
        on_conflict: str = "",
        fences: str = "batchqueue_epochs",
        connections: int = 2,
        patience: float = 30.0,
    ) -> None:
        require_name("dsn", dsn)
        require_name("table", table)
        require_columns(columns)
        require_name("fences", fences)
        require_count("connections", connections, at_least=1)
        self._columns = ("batchqueue_write", *columns)
        self._sql = Statements(table, columns, on_conflict, fences)
        self._reader = RowReader(columns, to_row, python_rows)
        self._attempts = Attempts()
        self._pool = PostgresPool(dsn, connections, patience, self._sql.create_fences)

    async def begin(self, epoch: Epoch) -> None:
        """Start an attempt; drop the staging tables of earlier ones.

        Raises:
            asyncpg.PostgresError: The table is missing, or may not be used.
        """
        attempt = self._attempts.start(epoch)
        async with self._pool.transaction() as connection:
            await self._drop(connection, await self._left_behind(connection, epoch))
            await connection.execute(self._sql.create_staging(attempt.name))

    async def write(self, epoch: Epoch, items: list[T]) -> None:
        """Add the items' rows to the attempt.

        Raises:
            BatchQueueError: The epoch was not begun.
            TypeError: An item is nothing that a row can be made of.
            ValueError: A row has too many values, or too few.
            asyncpg.PostgresError: The server refuses a value, or is gone.
        """
        attempt = self._attempts.of(epoch)
        number = attempt.next_write()
        # Off the loop: of record batches that is work.
        rows = await to_thread.run_sync(self._reader.rows, items)
        async with self._pool.connection() as connection:
            for start in range(0, len(rows), _COPIED_AT_ONCE):
                chunk = rows[start : start + _COPIED_AT_ONCE]
                await connection.copy_records_to_table(
                    attempt.name,
                    schema_name=self._sql.schema,
                    columns=self._columns,
                    records=((number, *row) for row in chunk),
                )
        attempt.acknowledged[number] = len(rows)

    async def commit(self, epoch: Epoch) -> None:
        """Move the rows into the table and add the fence, in one transaction.

        Raises:
            BatchQueueError: The epoch was not begun, or its staging table has lost
                rows because the server crashed or another attempt has begun.
            asyncpg.PostgresError: The server refuses, or is gone.
        """
        attempt = self._attempts.of(epoch)
        async with self._pool.transaction() as connection:
            await connection.execute("SET LOCAL synchronous_commit = on")
            fence = (epoch.query, epoch.batch, attempt.rows)
            # Waits for a transaction that adds the same one.
            added = await connection.execute(self._sql.add_fence, *fence)
            if added != "INSERT 0 0":
                await self._publish(connection, epoch, attempt)
            await self._drop(connection, [attempt.name])
        self._attempts.end(epoch)

    async def abort(self, epoch: Epoch) -> None:
        """Drop the attempt's staging table."""
        attempt = self._attempts.end(epoch)
        if attempt is not None:
            async with self._pool.transaction() as connection:
                await self._drop(connection, [attempt.name])

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return whether the fence is there."""
        key = (epoch.query, epoch.batch)
        async with self._pool.connection() as connection:
            return await connection.fetchval(self._sql.find_fence, *key) is not None

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def _publish(
        self, connection: Connection, epoch: Epoch, attempt: Attempt
    ) -> None:
        writes = [*attempt.acknowledged]
        is_there = await connection.fetchval(self._sql.has_staging(attempt.name))
        staged = (
            await connection.fetchval(self._sql.count(attempt.name), writes)
            if is_there
            else 0
        )
        if not is_there or staged != attempt.rows:
            msg = (
                f"{epoch} has lost rows: {attempt.rows} were staged, {staged} are left;"
                " the server has crashed, or another process has begun the same epoch"
            )
            raise BatchQueueError(msg)
        await connection.execute(self._sql.publish(attempt.name), writes)

    async def _left_behind(self, connection: Connection, epoch: Epoch) -> list[str]:
        found = await connection.fetch(self._sql.find_staging, prefix(epoch))
        return [record["relname"] for record in found]

    async def _drop(self, connection: Connection, tables: list[str]) -> None:
        for table in tables:
            await connection.execute(self._sql.drop_staging(table))
