"""The fences in a SQLite file: which epochs are committed, and into which table."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from batchqueue_async import BatchQueueError

from .epochs import Epoch
from .table_names import as_sql_reads, quoted, warn_of_old_fence

# In fences of the old layout, which don't know their table: they count for all.
ANY_TABLE = ""
_OLD_COLUMNS = ["query", "batch", "rows", "committed_at"]


class SqliteFences:
    """A table with a row for each epoch that was committed into a table.

    Names of tables are compared as SQLite does it: `Items` is `items`.

    Args:
        name: The table's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._place = f"main.{quoted(name)}"

    def prepare(self, database: sqlite3.Connection) -> None:
        """Make the table where it is missing; give one of the old layout the new one.

        Raises:
            BatchQueueError: The table is there, and is none of fences.
            sqlite3.Error: The file cannot be written.
        """
        if "target" in self._columns(database):
            return
        database.execute("BEGIN IMMEDIATE")
        columns = self._columns(database)  # another process may have been quicker
        if not columns:
            self._create(database)
        elif sorted(columns) == sorted(_OLD_COLUMNS):
            self._migrate(database)
        elif "target" not in columns:
            msg = f"table {self._name} is none of fences: it has {', '.join(columns)}"
            raise BatchQueueError(msg)
        database.execute("COMMIT")

    def has(self, database: sqlite3.Connection, table: str, epoch: Epoch) -> bool:
        """Return whether the fence is there; log if it doesn't know its table."""
        query = (
            f"SELECT target FROM {self._place} WHERE target IN (?, ?)"
            " AND query = ? AND batch = ? ORDER BY target DESC"
        )
        key = (table, ANY_TABLE, epoch.query, epoch.batch)
        with closing(database.execute(query, key)) as found:
            row = found.fetchone()
        if row is not None and row[0] == ANY_TABLE:
            warn_of_old_fence(epoch, table)
        return row is not None

    def add(
        self, database: sqlite3.Connection, table: str, epoch: Epoch, rows: int
    ) -> None:
        """Add the epoch's fence, in the transaction that is open."""
        database.execute(
            f"INSERT INTO {self._place} (target, query, batch, rows)"
            " VALUES (?, ?, ?, ?)",
            (table, epoch.query, epoch.batch, rows),
        )

    def _columns(self, database: sqlite3.Connection) -> list[str]:
        query = "SELECT lower(name) FROM pragma_table_info(?, 'main')"
        with closing(database.execute(query, (self._name,))) as found:
            return [str(name) for (name,) in found]

    def _create(self, database: sqlite3.Connection) -> None:
        # The default is for processes that know the old layout only.
        database.execute(
            f"CREATE TABLE {self._place} ("
            f"target TEXT COLLATE NOCASE NOT NULL DEFAULT '{ANY_TABLE}',"
            " query TEXT, batch INTEGER, rows INTEGER NOT NULL,"
            " committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,"
            " PRIMARY KEY (target, query, batch)) WITHOUT ROWID"
        )

    def _migrate(self, database: sqlite3.Connection) -> None:
        # A primary key can't be altered. All of it is one transaction.
        old, kept = "temp.batchqueue_old_fences", ", ".join(_OLD_COLUMNS)
        database.execute(f"CREATE TABLE {old} AS SELECT {kept} FROM {self._place}")
        database.execute(f"DROP TABLE {self._place}")
        self._create(database)
        database.execute(f"INSERT INTO {self._place} ({kept}) SELECT {kept} FROM {old}")
        database.execute(f"DROP TABLE {old}")


def find_table(database: sqlite3.Connection, table: str) -> str:
    """Return the name that a table of the file was created with.

    Raises:
        sqlite3.OperationalError: There is none.
    """
    names, spelled = [table], as_sql_reads(table)
    if spelled is not None and (spelled[0] or "main").lower() == "main":
        names.append(spelled[1])
    query = (
        "SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view')"
        " AND name = ? COLLATE NOCASE"
    )
    for name in names:
        with closing(database.execute(query, (name,))) as found:
            if (row := found.fetchone()) is not None:
                return str(row[0])
    msg = f"no such table: {table}"
    raise sqlite3.OperationalError(msg)
