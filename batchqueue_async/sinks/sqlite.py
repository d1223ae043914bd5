"""A table of a SQLite file, each epoch in it exactly once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from batchqueue_async import BatchQueueError
from batchqueue_async._one_process import OfOneProcess
from batchqueue_async._validation import require_at_least

from ._sqlite.affinity import declared_types
from ._sqlite.file import SqliteFile, find_table, require_insert
from ._sqlite.values import SqliteValues
from .checks import (
    RESERVED,
    renamed,
    require_columns,
    require_file,
    require_flag,
    require_name,
    require_on_conflict,
    require_to_row,
)
from .epoch_attempts import StagingEpochSink, Writes, new_name, prefix
from .epochs import Epoch
from .names import quoted
from .rows import RowReader, T, ToRow, plain_rows

R = TypeVar("R")


class SqliteEpochSink(OfOneProcess, StagingEpochSink[T, Writes]):
    """Writes epochs into a table of a SQLite file, which must exist.

    Why it is exactly once: what is written waits in a temporary table of this
    connection, which nobody else sees and which dies with the process. `commit` copies
    it into the table and adds a row to the table of fences, in one transaction of the
    same file. The fences' primary key is the table and the epoch, so there can be no
    second one, and any number of tables may share the fences.

    What it costs: every row is written twice, first into a temporary file. The file is
    locked for other writers during `commit` alone, and once while fences are made that
    are missing. A commit waits for the disk
    (`synchronous = EXTRA`, whatever the file is set to), because Spark forgets the
    epoch afterwards. One small row per epoch stays.

    Fences that earlier versions wrote know no table, and count for every table that
    shares them. A table that is filled anew from epochs of before needs its own.

    Items are tuples (a NamedTuple's fields are matched by name), lists or mappings; or
    record batches of pyarrow, whose timestamps become whole microseconds since 1970
    (UTC); anything else with `to_row`. Values are what SQLite takes (int, float, str,
    bytes, None); a Decimal, and a date or time of Python's, becomes its text, which
    sorts like it if it is a date. A row with a NaN, of which SQLite would make NULL
    without a word, is refused, unless `nan_as_null` says that this is wanted; so is a
    text like "00501" for a column of a type that SQLite doesn't know, such as STRING,
    of which it would make the number 501. Foreign keys are not enforced, as on each of
    SQLite's connections that doesn't ask for it. Blocking calls run in threads, one at
    a time. Close it with `close`, as a queue does with its `EpochWriter`.

    Args:
        path: The file.
        table: Where rows go: a table of the file, or a view that takes rows. As it is
            named, or as SQL spells it: `items`, `main.items` and `"items"` are one.
        columns: The columns of a row, in its order.
        to_row: Makes a row of an item: a tuple or list, or a mapping by column.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING".
        fences: The table of fences, made when it is missing.
        timeout: Seconds to wait while others have the file locked.
        nan_as_null: Write NULL for a NaN, instead of refusing its row.

    Attributes:
        columns: The names of a row's values; None with `to_row`.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind, or has a wrong value.
    """

    @renamed(patience="timeout")
    def __init__(  # noqa: PLR0913
        self,
        path: str | Path,
        table: str,
        columns: Sequence[str],
        *,
        to_row: ToRow[T] | None = None,
        on_conflict: str = "",
        fences: str = "batchqueue_epochs",
        timeout: float = 30.0,
        nan_as_null: bool = False,
    ) -> None:
        require_file("path", path)
        require_name("table", table)
        # SQLite knows no difference between `ID` and `id`.
        require_columns(columns, fold=str.lower)
        require_name("fences", fences)
        require_to_row(to_row)
        require_on_conflict(on_conflict)
        require_at_least("timeout", timeout, 0)
        require_flag("nan_as_null", nan_as_null)
        super().__init__()
        self._table = table
        self._columns = [*map(quoted, columns)]
        self._on_conflict = on_conflict
        self._names = tuple(columns)
        self.columns: tuple[str, ...] | None = None if to_row else self._names
        self._reader = RowReader(self._names, to_row, plain_rows)
        self._nan_as_null = nan_as_null
        self._file = SqliteFile(Path(path), timeout, fences)

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return whether the fence is there."""
        return await self._file.has_fence(self._table, epoch, of_own=True)

    async def close(self) -> None:
        """Close the file; attempts that have not ended are discarded."""
        await self._file.close()

    async def _start(self, epoch: Epoch) -> Writes:
        writes = Writes(new_name(epoch))

        def create(database: sqlite3.Connection) -> None:
            # Of a `begin` that was cancelled: its thread has gone on.
            query = "SELECT name FROM temp.sqlite_master WHERE substr(name, 1, ?) = ?"
            start = prefix(epoch)
            for (left,) in database.execute(query, (len(start), start)).fetchall():
                _drop(database, left)
            name = find_table(database, self._table)
            writes.types = declared_types(database, name)
            table = f"main.{quoted(name)}"
            # Without its table SQLite takes an unknown name in quotes for a text.
            columns = ", ".join(f"{table}.{c} AS {c}" for c in self._columns)
            database.execute(
                f"CREATE TEMP TABLE {writes.table} AS"
                f" SELECT 0 AS {RESERVED}, {columns} FROM {table} LIMIT 0"
            )
            insert = self._insert(name, writes)
            require_insert(database, insert, self._on_conflict, name)

        await self._file.run(create)
        return writes

    async def _stage(self, attempt: Writes, items: list[T]) -> None:
        number, names = attempt.next_number(), self._names
        values = SqliteValues(names, attempt.types, nan_as_null=self._nan_as_null)
        places = ", ".join("?" * len(self._columns))
        statement = f"INSERT INTO temp.{attempt.table} VALUES ({number}, {places})"

        def insert(database: sqlite3.Connection) -> int:
            rows = values.plain(self._reader.rows(items))
            database.execute("BEGIN")
            # If SQLite refuses a value, `SqliteFile.run` undoes the transaction.
            with suppress(UnicodeEncodeError, OverflowError):  # it has the whole text
                database.executemany(statement, rows)
                database.execute("COMMIT")
                return len(rows)
            raise values.refused(rows)

        attempt.acknowledged[number] = await self._run(attempt, insert)

    async def _publish(self, epoch: Epoch, attempt: Writes) -> None:
        def publish(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            table = find_table(database, self._table)
            if not self._file.fences.has_own(database, table, epoch):
                self._file.fences.add(database, table, epoch, attempt.rows)
                database.execute(
                    f"{self._insert(table, attempt)}"
                    f" WHERE {RESERVED} IN (SELECT value FROM json_each(?))"
                    f" ORDER BY {RESERVED}, rowid {self._on_conflict}",
                    (json.dumps([*attempt.acknowledged]),),
                )
            database.execute("COMMIT")
            _drop(database, attempt.table)

        await self._run(attempt, publish)

    def _insert(self, table: str, attempt: Writes) -> str:
        columns = ", ".join(self._columns)
        into = f"INSERT INTO main.{quoted(table)} ({columns})"
        return f"{into} SELECT {columns} FROM temp.{attempt.table}"

    async def _run(self, attempt: Writes, work: Callable[[sqlite3.Connection], R]) -> R:
        try:
            return await self._file.run(work)
        except sqlite3.OperationalError as error:
            if f"no such table: temp.{attempt.table}" not in str(error):
                raise
        msg = (
            "what was written of this epoch is gone: since its `begin` the file was"
            " replaced, or away, or the sink was closed, or the epoch has ended: start"
            " again, with `begin`"
        )
        raise BatchQueueError(msg)

    async def _discard(self, epoch: Epoch, attempt: Writes) -> None:
        await self._file.run(lambda database: _drop(database, attempt.table))


def _drop(database: sqlite3.Connection, table: str) -> None:
    database.execute(f"DROP TABLE IF EXISTS temp.{table}")
