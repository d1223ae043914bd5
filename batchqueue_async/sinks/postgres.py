"""A table of a PostgreSQL server, each epoch in it exactly once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NoReturn

from anyio import to_thread

from batchqueue_async import BatchQueueError
from batchqueue_async._validation import refuse, require_int
from batchqueue_async._wording import kind_of

from ._postgres.calendar import is_no_moment, use_whole_calendar
from ._postgres.connections import Connections
from ._postgres.deadlocks import despite_deadlocks
from ._postgres.exact_rows import require_exact, with_decimals
from ._postgres.fences import EPOCHS, Fences, lock_epoch
from ._postgres.left_tables import left_tables, scope
from ._postgres.staging_table import StagingTable
from ._postgres.target import (
    LONGEST_NAME,
    NotEncoded,
    Target,
    column_types,
    find_target,
)
from .checks import (
    RESERVED,
    listed,
    renamed,
    require_columns,
    require_name,
    require_on_conflict,
    require_to_row,
)
from .epoch_attempts import StagingEpochSink, Writes, new_name, prefix
from .epochs import Epoch
from .names import quoted
from .rows import Row, RowReader, T, ToRow, is_record_batch, python_rows, selected

if TYPE_CHECKING:
    from ._postgres.connections import Connection
    from ._postgres.copied_batches import CopiedBatches


# asyncpg encodes rows on the event loop, which must run in between: whoever waits for
# it on a thread gives it half a second.
_COPIED_AT_ONCE = 5_000
# Record batches of one COPY, of 10,000 rows if they are Spark's: while the server reads
# one, another is made for the next connection.
_BATCHES_AT_ONCE = 8
_NO_SUCH_TABLE = "42P01"
# What asyncpg raises of a value that it can't encode, or of one without all its parts.
_OF_VALUES = TypeError, ValueError, ArithmeticError, AttributeError, LookupError
# Types of extensions, and a few of the server's own.
_NOT_ENCODED = re.compile(r"no binary .* type (?P<name>.+) \(OID (?P<number>\d+)\)")


class PostgresEpochSink(StagingEpochSink[T, Writes]):
    """Writes epochs into a table of PostgreSQL, which must exist.

    Why it is exactly once: every attempt has a staging table of its own, which nobody
    reads. `commit` moves its rows into the table and adds a row to the table of fences,
    in one transaction. The fences' primary key is the table and the epoch: of two
    processes that commit the same one, the second waits and then finds the first one's
    fence. What died processes left is dropped when their epoch begins again. Any number
    of tables of one schema may share the fences.

    What it costs: every row is written twice. First by COPY into an unlogged table,
    which is cheap; a server that crashes empties it, so `commit` counts the rows. Then
    on the server alone, while a commit takes as long as an INSERT of the whole epoch,
    and waits for the server's disk, also if `synchronous_commit` is off. One small row
    per epoch stays. It needs the right to make tables in the table's schema.

    Nothing waits for ever. The server ends a statement that takes longer than
    `statement_timeout`; if it stands still or can't be reached, the sink gives the
    connection up some seconds later. It may be behind a pooler such as PgBouncer, in
    transaction mode, too: what it sets ends with each transaction.

    Fences that earlier versions wrote know no table, and count for every table of their
    schema; those of `PostgresStagedSink` count, too. A table that is filled anew from
    epochs of before those needs `fences` of its own. Newer ones know it by its name and
    oid: they count for a table that was renamed, and not for one that was dropped and
    made again, of which a warning tells.

    Items are tuples (a NamedTuple's fields are matched by name), lists or mappings of
    what asyncpg takes, or record batches of pyarrow; anything else with `to_row`.
    Record batches are the quickest by far, where their columns have the table's own
    types, or are decimals: then no row becomes a Python object. For a column of
    timestamps an int stands for microseconds since 1970 (UTC). It belongs to one loop,
    and when that is closed to the next one that uses it; another one is refused. Close
    it with `close`, as a queue does with its `EpochWriter`.

    Args:
        url: The server and the database: `postgresql://...`. No message and no log has
            it.
        table: Where rows go; "schema.table" for one outside of the search path. As it
            is named, or in double quotes as SQL spells it: `t`, `public.t` and
            `public."t"` are one.
        columns: The columns of a row, in its order.
        to_row: Makes a row of an item: a tuple or list, or a mapping by column.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING". With
            DO UPDATE an epoch must hold each key once.
        fences: The table of fences, made when it is missing, in the table's schema.
        connections: How many connections it opens at most. A write of more than 8
            record batches is copied on all of them.
        timeout: Seconds until a connection that is not made fails.
        statement_timeout: Seconds that a statement may take. A commit's longest is the
            INSERT of the whole epoch.

    Attributes:
        columns: The names of a row's values; None with `to_row`.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind, or has a wrong value.
    """

    @renamed(dsn="url", patience="timeout")
    def __init__(  # noqa: PLR0913
        self,
        url: str,
        table: str,
        columns: Sequence[str],
        *,
        to_row: ToRow[T] | None = None,
        on_conflict: str = "",
        fences: str = EPOCHS,
        connections: int = 2,
        timeout: float = 30.0,
        statement_timeout: float = 300.0,
    ) -> None:
        require_name("table", table)
        require_columns(columns)
        require_name("fences", fences)
        if len(fences.encode()) > LONGEST_NAME:
            refuse("fences", f"of {LONGEST_NAME} bytes at most", fences)
        require_to_row(to_row)
        require_on_conflict(on_conflict)
        require_int("connections", connections, at_least=1)
        super().__init__()
        self._table = table
        self._columns = tuple(columns)
        self._on_conflict = on_conflict
        self.columns: tuple[str, ...] | None = None if to_row else self._columns
        self._has_to_row = to_row is not None
        self._reader = RowReader(self._columns, to_row, python_rows)
        self._fence_table = fences
        self._fences = Fences(fences)
        self._copies = connections
        self._connections = Connections(
            url,
            timeout,
            statement_timeout,
            self._prepare,
            connections=connections,
            each=use_whole_calendar,
        )

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return whether the fence is there."""
        async with self._connections.transaction() as connection:
            return await self._fences.has_own(connection, epoch)

    async def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    async def _prepare(self, connection: Connection) -> None:
        async with self._connections.within(connection):
            self._target: Target = await find_target(connection, self._table)
            await self._fences.prepare(connection, self._target)
        # Other tables' attempts at the same epoch lie beside this one's.
        self._scope = scope(self._target, self._fence_table)

    async def _start(self, epoch: Epoch) -> Writes:
        async with self._connections.transaction() as connection:
            attempt = Writes(new_name(epoch, self._scope))
            # The second is of earlier versions, whose names had no table.
            starts = prefix(epoch, self._scope), prefix(epoch)
            for left in await left_tables(connection, self._target, *starts):
                await left.drop(connection)
            columns = ", ".join(map(quoted, self._columns))
            staging = self._staging(attempt)
            await staging.create(connection, "0", columns)
            attempt.types = await column_types(connection, staging.place)
            await staging.require_insert(connection, self._columns, self._on_conflict)
        return attempt

    async def _stage(self, attempt: Writes, items: list[T]) -> None:
        number = attempt.next_number()
        pieces, rows = self._pieces(items), 0
        left = iter(pieces)

        async def copy_what_is_left() -> None:
            nonlocal rows
            async with self._connections.lent() as connection:
                for piece in left:
                    copied = await self._copy(connection, attempt, number, piece)
                    rows += copied

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(pieces), self._copies)):
                    group.create_task(copy_what_is_left())
        except BaseExceptionGroup as errors:
            error = errors.exceptions[0]  # it has caused the others
            if getattr(error, "sqlstate", None) == _NO_SUCH_TABLE:
                msg = (
                    f"the staging table {attempt.table} is gone: another process has"
                    " begun the same epoch, such as a second driver of one checkpoint"
                )
                raise BatchQueueError(msg) from None
            raise error from None
        attempt.acknowledged[number] = rows

    def _pieces(self, items: list[T]) -> list[list[T]]:
        """Cut record batches into what one COPY takes. Rows keep the loop busy: one."""
        if self._has_to_row or not all(map(is_record_batch, items)):
            return [items]
        starts = range(0, len(items), _BATCHES_AT_ONCE)
        return [items[start : start + _BATCHES_AT_ONCE] for start in starts]

    async def _copy(
        self, connection: Connection, attempt: Writes, number: int, items: list[T]
    ) -> int:
        # On a thread, since record batches would hold the loop up.
        parts = await to_thread.run_sync(self._parts, items, number, attempt.types)
        staging = self._staging(attempt)
        async with self._connections.within(connection):
            for part in parts:
                if isinstance(part, list):
                    for start in range(0, len(part), _COPIED_AT_ONCE):
                        rows = part[start : start + _COPIED_AT_ONCE]
                        await self._copy_rows(connection, attempt, number, rows)
                else:
                    async with self._connections.copying(connection):
                        await part.copy(connection, staging)
        return sum(map(len, parts))

    def _parts(
        self, items: list[T], number: int, types: dict[str, int]
    ) -> list[list[Row] | CopiedBatches]:
        """Return the items as what is copied: record batches as they are, and rows."""
        if self._has_to_row or not any(map(is_record_batch, items)):
            return [self._exact_rows(items, types)]
        from ._postgres.copied_batches import (  # noqa: PLC0415  # pyarrow is there
            BatchCopier,
        )

        copier = BatchCopier(RESERVED, types)

        def fitted(item: Any) -> Any:  # noqa: ANN401 - a user's item is anything
            if not is_record_batch(item):
                return item
            return copier.fitted(selected(item, self._columns))

        def is_copied(item: Any) -> bool:  # noqa: ANN401 - as above
            return is_record_batch(item) and copier.is_plain(item.schema)

        parts: list[list[Row] | CopiedBatches] = []
        for goes_as_it_is, group in groupby(map(fitted, items), is_copied):
            if goes_as_it_is:
                parts.extend(copier.copies(group, number))
            else:
                parts.append(self._exact_rows(group, types))
        return parts

    def _exact_rows(self, items: Iterable[T], types: dict[str, int]) -> list[Row]:
        rows = self._reader.rows(items)
        require_exact(rows, self._columns, types)
        return [*with_decimals(rows, self._columns, types)]

    async def _publish(self, epoch: Epoch, attempt: Writes) -> None:
        await despite_deadlocks(lambda: self._publish_once(epoch, attempt))

    async def _publish_once(self, epoch: Epoch, attempt: Writes) -> None:
        staged = attempt.rows
        async with self._connections.transaction() as connection:
            await lock_epoch(connection, self._target, epoch)
            staging = self._staging(attempt)
            is_new = not await self._fences.has_own(connection, epoch)
            # Waits for a transaction of an earlier version that adds the same one.
            if is_new and await self._fences.add(connection, epoch, staged):
                writes = [*attempt.acknowledged]
                left = await staging.publish(
                    connection, writes, self._columns, self._on_conflict, staged
                )
                if left != staged:  # the transaction is undone
                    msg = (
                        f"{epoch} has lost rows: {staged} were staged, {left} are left;"
                        " the server has crashed, or another process has begun the same"
                        " epoch"
                    )
                    raise BatchQueueError(msg)
            await staging.drop(connection)

    async def _discard(self, epoch: Epoch, attempt: Writes) -> None:
        async with self._connections.transaction() as connection:
            await self._staging(attempt).drop(connection)

    def _staging(self, attempt: Writes) -> StagingTable:
        return StagingTable(self._target, attempt.table, RESERVED)

    async def _copy_rows(
        self, connection: Connection, attempt: Writes, number: int, rows: list[Row]
    ) -> None:
        # The row that is being encoded, and what is wrong with it.
        row, failed = rows[0], None

        def records() -> Iterator[tuple[Any, ...]]:
            nonlocal row
            for row in rows:
                yield (number, *row)

        try:
            async with self._connections.copying(connection):
                await connection.copy_records_to_table(
                    attempt.table,
                    schema_name=self._target.schema,
                    columns=(RESERVED, *self._columns),
                    records=records(),
                )
        except NotEncoded as error:
            self._refuse_type(error, attempt.types)
            raise
        except _OF_VALUES as error:
            failed = type(error)
        if failed is not None:  # not in the `except`: the error quotes the value
            self._refuse_row(row, failed, attempt.types)

    def _refuse_type(self, error: Exception, types: dict[str, int]) -> None:
        """Raise a TypeError if it says that asyncpg can't encode a column's type."""
        found = _NOT_ENCODED.search(str(error))
        if found is None:
            return
        number = int(found["number"])
        of_it = listed([column for column in self._columns if types[column] == number])
        msg = (
            f"column {of_it or 'of arrays'} must be of a type that asyncpg encodes, got"
            f" {found['name']}, of which PostgresStagedSink takes texts"
        )
        raise TypeError(msg) from None

    def _refuse_row(
        self, row: Row, error: type[BaseException], types: dict[str, int]
    ) -> NoReturn:
        """Raise a TypeError or ValueError for a row that can't be encoded."""
        for column, value in zip(self._columns, row, strict=True):
            if is_no_moment(value, types.get(column, 0)):
                msg = (
                    f"column {column} must be a timestamp of the years 1 to 9999, in"
                    " whole microseconds since 1970, got another number"
                )
                raise ValueError(msg)
        told = [f"{c}: {kind_of(v)}" for c, v in zip(self._columns, row, strict=True)]
        msg = (
            f"an item must be of what the table's columns take ({error.__name__}), got"
            f" {listed(told)}"
        )
        raise TypeError(msg) if issubclass(error, TypeError) else ValueError(msg)
