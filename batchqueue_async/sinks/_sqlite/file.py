"""A SQLite file: one connection to it, its tables, and the fences among them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from batchqueue_async import BatchQueueError

from ..epochs import Epoch
from ..table_names import ANY_TABLE, as_sql_reads, quoted, warn_of_old_fence

R = TypeVar("R")

_OLD_COLUMNS = ["query", "batch", "rows", "committed_at"]


class SqliteFile:
    """Runs blocking calls in threads, on a connection that the first of them opens.

    A commit waits for the disk, whatever the file is set to. Among the tables is one of
    fences, with a row for each epoch that was committed into a table. Names of tables
    are compared as SQLite does it: `Items` is `items`.

    Args:
        path: The file.
        timeout: Seconds to wait while others have it locked.
        fences: The name of the table of fences, made when it is missing.
    """

    def __init__(self, path: Path, timeout: float, fences: str) -> None:
        self._path = path
        self._timeout = timeout
        self._fences = fences
        self._place = f"main.{quoted(fences)}"
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    async def run(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Return what `work` returns; a transaction that it leaves open is undone.

        If it is cancelled the thread goes on, and the next call waits for it.
        """
        return await to_thread.run_sync(self._run_here, work)

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        await to_thread.run_sync(self._close)

    def has_fence(self, database: sqlite3.Connection, table: str, epoch: Epoch) -> bool:
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

    def add_fence(
        self, database: sqlite3.Connection, table: str, epoch: Epoch, rows: int
    ) -> None:
        """Add the epoch's fence, in the transaction that is open."""
        database.execute(
            f"INSERT INTO {self._place} (target, query, batch, rows)"
            " VALUES (?, ?, ?, ?)",
            (table, epoch.query, epoch.batch, rows),
        )

    def _run_here(self, work: Callable[[sqlite3.Connection], R]) -> R:
        with self._lock:
            if self._connection is None:
                self._connection = self._open()
            try:
                return work(self._connection)
            finally:
                if self._connection.in_transaction:
                    self._connection.rollback()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            self._prepare_fences(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _prepare_fences(self, database: sqlite3.Connection) -> None:
        """Make the table, or give one of the old layout the new one."""
        if "target" in self._columns(database):
            return
        database.execute("BEGIN IMMEDIATE")
        columns = self._columns(database)  # another process may have been quicker
        if not columns:
            self._create_fences(database)
        elif sorted(columns) == sorted(_OLD_COLUMNS):
            # A primary key can't be altered. All of it is one transaction.
            old, kept = "temp.batchqueue_old_fences", ", ".join(_OLD_COLUMNS)
            database.execute(f"CREATE TABLE {old} AS SELECT {kept} FROM {self._place}")
            database.execute(f"DROP TABLE {self._place}")
            self._create_fences(database)
            database.execute(
                f"INSERT INTO {self._place} ({kept}) SELECT {kept} FROM {old}"
            )
            database.execute(f"DROP TABLE {old}")
        elif "target" not in columns:
            has = ", ".join(columns)
            msg = f"table {self._fences} is none of fences: it has {has}"
            raise BatchQueueError(msg)
        database.execute("COMMIT")

    def _columns(self, database: sqlite3.Connection) -> list[str]:
        query = "SELECT lower(name) FROM pragma_table_info(?, 'main')"
        with closing(database.execute(query, (self._fences,))) as found:
            return [str(name) for (name,) in found]

    def _create_fences(self, database: sqlite3.Connection) -> None:
        # The default is for processes that know the old layout only.
        database.execute(
            f"CREATE TABLE {self._place} ("
            f"target TEXT COLLATE NOCASE NOT NULL DEFAULT '{ANY_TABLE}',"
            " query TEXT, batch INTEGER, rows INTEGER NOT NULL,"
            " committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,"
            " PRIMARY KEY (target, query, batch)) WITHOUT ROWID"
        )


def find_table(database: sqlite3.Connection, table: str) -> str:
    """Return the name that a table of the file was created with."""
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
