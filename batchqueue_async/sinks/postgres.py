"""A table of a PostgreSQL server, each epoch in it exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio import to_thread

from batchqueue_async import BatchQueueError

from .attempts import Attempt, Attempts, prefix
from .checks import (
    RESERVED,
    refuse,
    require_columns,
    require_count,
    require_name,
    require_seconds,
    require_url,
)
from .epochs import Epoch
from .postgres_errors import Remembering, refuse_row
from .postgres_fences import PostgresFences
from .postgres_limits import Limits
from .postgres_pool import PostgresPool
from .postgres_statements import Statements
from .postgres_target import LONGEST_NAME, find_target
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
    in one transaction. The fences' primary key is the table and the epoch: of two
    processes that commit the same one, the second waits for the first and then finds
    its fence. What died processes left is dropped when their epoch begins again. Any
    number of tables of one schema may share the fences.

    What it costs: every row is written twice. The first time by COPY into an unlogged
    table, which is cheap; a server that crashes empties it, so `commit` counts the rows
    first. The second time on the server alone, while a commit takes as long as an
    INSERT of the whole epoch. A commit waits for the server's disk, whatever
    `synchronous_commit` says. One small row per epoch stays. It needs the right to make
    tables in the table's schema.

    Nothing waits for ever. A statement that takes longer than `statement_timeout` is
    ended by the server; if the server doesn't do that either, because it stands still
    or can't be reached, the sink gives the connection up some seconds later.

    Fences that earlier versions wrote know no table. They are kept, and count for every
    table of their schema, with a warning in the log: better an epoch that a table gets
    once more from its source by hand than one that is written twice. A table that is
    filled anew from epochs of before needs `fences` of its own. Whoever renames a table
    renames it in the fences' column `target`, too.

    Items are tuples, lists or mappings of what asyncpg takes, or record batches of
    pyarrow; anything else with `to_row`. It belongs to the loop that uses it first.
    Close it with `close`; a queue whose handler is an `EpochWriter` does that.

    Args:
        dsn: The server and the database, as a URL. It is told to nobody: no message
            and no log has it.
        table: Where rows go; "schema.table" for one outside of the search path. As it
            is named, or in double quotes as SQL spells it: `t`, `public.t` and
            `public."t"` are one.
        columns: The columns of a row, in its order.
        to_row: Makes a row of an item.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING". With
            DO UPDATE an epoch must hold each key once.
        fences: The table of fences, made when it is missing, in the table's schema.
        connections: How many connections it opens at most.
        patience: Seconds until a connection that is not made fails.
        statement_timeout: Seconds that a statement may take. A commit's longest is the
            INSERT of the whole epoch.

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
        statement_timeout: float = 300.0,
    ) -> None:
        require_url("dsn", dsn)
        require_name("table", table)
        require_columns(columns)
        require_name("fences", fences)
        if len(fences.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
            refuse("fences", f"of {LONGEST_NAME} bytes at most", fences)
        require_count("connections", connections, at_least=1)
        require_seconds("patience", patience)
        self._table = table
        self._columns = tuple(columns)
        self._on_conflict = on_conflict
        self._reader = RowReader(columns, to_row, python_rows)
        self._attempts = Attempts()
        self._fence_table = fences
        self._fences = PostgresFences(fences)
        self._limits = Limits(statement_timeout)
        self._pool = PostgresPool(
            dsn, connections, patience, self._limits, self._prepare
        )

    async def begin(self, epoch: Epoch) -> None:
        """Start an attempt; drop the staging tables of earlier ones.

        Raises:
            asyncpg.PostgresError: The table is missing, or may not be used.
        """
        async with self._pool.transaction() as connection:
            attempt = self._attempts.start(epoch, self._scope)
            await self._drop(connection, await self._left_behind(connection, epoch))
            await connection.execute(self._sql.create_staging(attempt.name))

    async def write(self, epoch: Epoch, items: list[T]) -> None:
        """Add the items' rows to the attempt.

        Raises:
            BatchQueueError: The epoch was not begun.
            TypeError: An item is nothing that a row can be made of.
            ValueError: A row has too many values, or too few, or wrong ones.
            asyncpg.PostgresError: The server refuses a value, or is gone.
        """
        attempt = self._attempts.of(epoch)
        number = attempt.next_write()
        # Off the loop: of record batches that is work.
        rows = await to_thread.run_sync(self._reader.rows, items)
        async with self._pool.connection() as connection:
            for start in range(0, len(rows), _COPIED_AT_ONCE):
                chunk = rows[start : start + _COPIED_AT_ONCE]
                await self._copy(connection, attempt.name, number, chunk)
        attempt.acknowledged[number] = len(rows)

    async def commit(self, epoch: Epoch) -> None:
        """Move the rows into the table and add the fence, in one transaction.

        Raises:
            BatchQueueError: The epoch was not begun, or its staging table has lost
                rows because the server crashed or another attempt has begun.
            asyncpg.PostgresError: The server refuses, or is gone.
            TimeoutError: The server does not answer.
        """
        attempt = self._attempts.of(epoch)
        async with self._pool.transaction() as connection:
            await connection.execute("SET LOCAL synchronous_commit = on")
            is_new = not await self._fences.has(connection, epoch)
            # Waits for a transaction that adds the same one.
            if is_new and await self._fences.add(connection, epoch, attempt.rows):
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
        async with self._pool.connection() as connection:
            return await self._fences.has(connection, epoch)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def _prepare(self, connection: Connection) -> None:
        target = await find_target(connection, self._table)
        await self._fences.prepare(connection, target)
        self._sql = Statements(target, self._columns, self._on_conflict)
        # Other tables' attempts at the same epoch lie beside this one's.
        self._scope = f"{target.place}\0{self._fence_table}"

    async def _copy(
        self, connection: Connection, name: str, number: int, rows: list[Row]
    ) -> None:
        going, failed = Remembering(rows), None
        try:
            async with self._limits.copying():
                await connection.copy_records_to_table(
                    name,
                    schema_name=self._sql.target.schema,
                    columns=(RESERVED, *self._columns),
                    records=((number, *row) for row in going),
                )
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            failed = type(error)
        if failed is not None:  # not in the `except`: the error quotes the value
            refuse_row(self._columns, going.last, failed)

    async def _publish(
        self, connection: Connection, epoch: Epoch, attempt: Attempt
    ) -> None:
        writes = [*attempt.acknowledged]
        place = self._sql.target.beside(attempt.name)
        is_there = await connection.fetchval(self._sql.has_staging, place)
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
        # Without the table: what earlier versions called them.
        prefixes = (prefix(epoch, self._scope), prefix(epoch))
        schema = self._sql.target.schema
        found = await connection.fetch(self._sql.find_staging, schema, *prefixes)
        return [record["relname"] for record in found]

    async def _drop(self, connection: Connection, tables: list[str]) -> None:
        for table in tables:
            await connection.execute(self._sql.drop_staging(table))
