"""A table of a SQLite file, each epoch in it exactly once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Generic, TypeVar

from .attempts import Attempt, Attempts
from .checks import require_columns, require_name
from .epochs import Epoch
from .rows import Row, RowReader, plain_rows, plain_value
from .sqlite_file import SqliteFile

T = TypeVar("T")


class SqliteEpochSink(Generic[T]):
    """Writes epochs into a table of a SQLite file, which must exist.

    Why it is exactly once: what is written waits in a temporary table of this
    connection, which nobody else sees and which dies with the process. `commit` copies
    it into the table and adds a row to the table of fences, in one transaction of the
    same file. The fences' primary key is the epoch, so there can be no second one.

    What it costs: every row is written twice, the first time into a temporary file. The
    file is locked for other writers during `commit` alone. A commit waits for the disk
    (`synchronous = FULL`, whatever the file is set to), because Spark forgets the epoch
    afterwards. One small row per epoch stays.

    Items are tuples, lists or mappings; or record batches of pyarrow, whose timestamps
    become whole microseconds since 1970 (UTC); anything else with `to_row`. Values are
    what SQLite takes (int, float, str, bytes, None); a Decimal, and a date or time of
    Python's, becomes its text, which sorts like it if it is a date. Blocking calls run
    in threads, one at a time. Close it with `close`; a queue whose handler is an
    `EpochWriter` does that.

    Args:
        path: The file.
        table: Where rows go.
        columns: The columns of a row, in its order.
        to_row: Makes a row of an item.
        on_conflict: The end of the INSERT, such as "ON CONFLICT (id) DO NOTHING".
        fences: The table of fences, made when it is missing.
        patience: Seconds to wait while others have the file locked.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument has a wrong value.
    """

    def __init__(  # noqa: PLR0913
        self,
        path: str | Path,
        table: str,
        columns: Sequence[str],
        *,
        to_row: Callable[[T], Row] | None = None,
        on_conflict: str = "",
        fences: str = "batchqueue_epochs",
        patience: float = 30.0,
    ) -> None:
        require_name("table", table)
        require_columns(columns)
        require_name("fences", fences)
        self._table = _quoted(table)
        self._columns = ", ".join(map(_quoted, columns))
        # Alone, an unknown name in quotes is a text: SQLite's oldest trap.
        self._typed_columns = ", ".join(
            f"{self._table}.{column} AS {column}" for column in map(_quoted, columns)
        )
        self._places = ", ".join("?" * len(columns))
        self._on_conflict = on_conflict
        self._fences = _quoted(fences)
        self._reader = RowReader(columns, to_row, plain_rows)
        self._attempts = Attempts()
        self._file = SqliteFile(
            Path(path),
            patience,
            f"CREATE TABLE IF NOT EXISTS {self._fences} ("
            "query TEXT, batch INTEGER, rows INTEGER NOT NULL,"
            " committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,"
            " PRIMARY KEY (query, batch)) WITHOUT ROWID",
        )

    async def begin(self, epoch: Epoch) -> None:
        """Start an attempt, in a temporary table of its own.

        Raises:
            sqlite3.Error: The table, or one of its columns, is missing.
        """
        await self.abort(epoch)
        attempt = self._attempts.start(epoch)
        statement = (
            f"CREATE TEMP TABLE {attempt.name} AS"
            f" SELECT 0 AS batchqueue_write, {self._typed_columns} FROM {self._table}"
            " LIMIT 0"
        )
        await self._file.run(lambda database: database.execute(statement))

    async def write(self, epoch: Epoch, items: list[T]) -> None:
        """Add the items' rows to the attempt.

        Raises:
            BatchQueueError: The epoch was not begun.
            TypeError: An item is nothing that a row can be made of.
            ValueError: A row has too many values, or too few.
        """
        attempt = self._attempts.of(epoch)
        number = attempt.next_write()
        statement = f"INSERT INTO {attempt.name} VALUES (?, {self._places})"

        def insert(database: sqlite3.Connection) -> int:
            rows = [
                (number, *map(plain_value, row)) for row in self._reader.rows(items)
            ]
            database.execute("BEGIN")
            # Undone by the file if a value is not what SQLite takes.
            database.executemany(statement, rows)
            database.execute("COMMIT")
            return len(rows)

        attempt.acknowledged[number] = await self._file.run(insert)

    async def commit(self, epoch: Epoch) -> None:
        """Copy the rows into the table and add the fence, in one transaction.

        Raises:
            BatchQueueError: The epoch was not begun.
            sqlite3.Error: The file cannot be written; nothing was committed.
        """
        attempt = self._attempts.of(epoch)
        await self._file.run(lambda database: self._publish(database, epoch, attempt))
        await self.abort(epoch)

    async def abort(self, epoch: Epoch) -> None:
        """Discard what the attempt wrote."""
        attempt = self._attempts.end(epoch)
        if attempt is not None:
            statement = f"DROP TABLE IF EXISTS temp.{attempt.name}"
            await self._file.run(lambda database: database.execute(statement))

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return whether the fence is there."""
        return await self._file.run(lambda database: self._has_fence(database, epoch))

    async def close(self) -> None:
        """Close the file; attempts that have not ended are discarded."""
        await self._file.close()

    def _publish(
        self, database: sqlite3.Connection, epoch: Epoch, attempt: Attempt
    ) -> None:
        database.execute("BEGIN IMMEDIATE")
        if not self._has_fence(database, epoch):
            database.execute(
                f"INSERT INTO {self._fences} (query, batch, rows) VALUES (?, ?, ?)",
                (epoch.query, epoch.batch, attempt.rows),
            )
            database.execute(
                f"INSERT INTO {self._table} ({self._columns})"
                f" SELECT {self._columns} FROM temp.{attempt.name}"
                " WHERE batchqueue_write IN (SELECT value FROM json_each(?))"
                f" ORDER BY batchqueue_write, rowid {self._on_conflict}",
                (json.dumps([*attempt.acknowledged]),),
            )
        database.execute("COMMIT")

    def _has_fence(self, database: sqlite3.Connection, epoch: Epoch) -> bool:
        query = f"SELECT 1 FROM {self._fences} WHERE query = ? AND batch = ?"
        with closing(database.execute(query, (epoch.query, epoch.batch))) as found:
            return found.fetchone() is not None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
