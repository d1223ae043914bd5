"""The fences of a SQLite file: a row for each epoch that was committed into a table.

SQLite numbers tables anew with each VACUUM, so a table gets a mark: a trigger that
never fires. It goes with a table that is dropped, stays with one that is renamed, and
is in backups and dumps. By its mark a table is known by another name, or made again.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any, TypeAlias
from uuid import uuid4

from batchqueue_async import BatchQueueError

from ..epochs import Epoch, key_of
from ..fences import (
    ANY_TABLE,
    KNOWN_TARGETS,
    refuse_query,
    require_own,
    warn_of_new_table,
    warn_of_old_fence,
)
from ..names import quoted

_OLD_COLUMNS = ["query", "batch", "rows", "committed_at"]
_LATER_COLUMNS = {"identity", "checkpoint"}
_MARK = "batchqueue_identity_"
# For the identities of tables that are there, under whatever name.
_MARKED = (
    f"(SELECT substr(name, {len(_MARK) + 1}) FROM main.sqlite_master"
    f" WHERE type = 'trigger' AND substr(name, 1, {len(_MARK)}) = '{_MARK}')"
)
_OF_EPOCH = """
    SELECT target, query, checkpoint FROM known JOIN {0} ON target = name
    WHERE {1} = ? AND batch = ?"""

# Its target, its query and its checkpoint.
_Found: TypeAlias = tuple[str, str, str | None]


class SqliteFences:
    """A table with a row for each epoch that was committed into a table of the file.

    Names of tables are compared as SQLite does it: `Items` is `items`. A fence notes
    the identity of its table, too, which is the same under another name, and another if
    a table is dropped and made again. Where a table has lost its identity but has rows,
    it was rebuilt, as SQLite's way to alter tables is: its fences count by their name.
    Those of versions that noted no identity do so, too. It also notes the checkpoint of
    the stream that the epoch came from, if there is one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._place = f"main.{quoted(name)}"

    def prepare(self, database: sqlite3.Connection) -> None:
        """Make the table, or give one of an old layout the new one."""
        if "checkpoint" in self._columns(database):
            return
        database.execute("BEGIN IMMEDIATE")
        columns = self._columns(database)  # another process may have been quicker
        if not columns:
            self._create(database)
        elif sorted(columns) == sorted(_OLD_COLUMNS):
            # A primary key can't be altered. All of it is one transaction.
            old, kept = "temp.batchqueue_old_fences", ", ".join(_OLD_COLUMNS)
            database.execute(f"CREATE TABLE {old} AS SELECT {kept} FROM {self._place}")
            database.execute(f"DROP TABLE {self._place}")
            self._create(database)
            database.execute(
                f"INSERT INTO {self._place} ({kept}) SELECT {kept} FROM {old}"
            )
            database.execute(f"DROP TABLE {old}")
        elif "target" not in columns:
            has = ", ".join(columns)
            msg = f"table {self._name} is none of fences: it has {has}"
            raise BatchQueueError(msg)
        else:
            for column in _LATER_COLUMNS.difference(columns):
                database.execute(f"ALTER TABLE {self._place} ADD COLUMN {column} TEXT")
        database.execute("COMMIT")

    def has(self, database: sqlite3.Connection, table: str, epoch: Epoch) -> bool:
        """Return whether the fence is there; log if it doesn't know its table."""
        return self._found(database, table, epoch) is not None

    def has_own(self, database: sqlite3.Connection, table: str, epoch: Epoch) -> bool:
        """Return the same; raise if it is another stream's, or has another query."""
        found = self._found(database, table, epoch)
        if found is None:
            self._require_query(database, table, epoch)
            return False
        require_own(epoch, found[2])
        return True

    def _require_query(
        self, database: sqlite3.Connection, table: str, epoch: Epoch
    ) -> None:
        """Raise if the stream has written the batch under another query.

        Whose last batch has its fence goes on as before: no key says where a checkpoint
        is, and all of its table's fences would be read.
        """
        if epoch.checkpoint is None:
            return
        last = epoch.query, epoch.batch - 1
        if epoch.batch and self._look_up(database, table, "query", *last):
            return
        key = "checkpoint", epoch.checkpoint, epoch.batch
        if (found := self._look_up(database, table, *key)) is not None:
            refuse_query(epoch, found[1])

    def _found(
        self, database: sqlite3.Connection, table: str, epoch: Epoch
    ) -> _Found | None:
        """Return the epoch's fence; log if it doesn't know its table."""
        found = self._look_up(database, table, "query", *key_of(epoch))
        if found is not None and found[0] == ANY_TABLE:
            warn_of_old_fence(epoch, table)
        return found

    def _look_up(
        self,
        database: sqlite3.Connection,
        table: str,
        by: str,
        name: str,
        batch: int,
    ) -> _Found | None:
        if not self._columns(database):
            return None  # dropped since `prepare`
        identity = _identity_of(database, table)
        is_rebuilt = identity is None and not _is_empty(database, table)
        unknown = f" OR identity NOT IN {_MARKED}" if is_rebuilt else ""
        query = (
            f"{(KNOWN_TARGETS + _OF_EPOCH).format(self._place, by)}"
            f" AND (identity = ? OR target IN (?, ?) AND (identity IS NULL{unknown}))"
            " ORDER BY target DESC"
        )
        which = (name, batch, identity, table, ANY_TABLE)
        with closing(database.execute(query, which)) as rows:
            found: _Found | None = rows.fetchone()
        return found

    def add(
        self, database: sqlite3.Connection, table: str, epoch: Epoch, rows: int
    ) -> None:
        """Add the epoch's fence, before its rows, in the transaction that is open."""
        if not self._columns(database):
            self._create(database)
        identity = _identity_of(database, table)
        if identity is None:
            identity = _mark(database, table, self._last_identity(database, table))
        which = (table, *key_of(epoch))
        # The other table's fence stays: that table may only have been renamed.
        moved = database.execute(
            f"UPDATE {self._place} SET target = target || ' (' || identity || ')'"
            " WHERE target = ? AND query = ? AND batch = ? AND identity IS NOT ?",
            (*which, identity),
        )
        if moved.rowcount:
            warn_of_new_table(epoch, table)
        database.execute(
            f"INSERT INTO {self._place}"
            " (target, query, batch, rows, identity, checkpoint)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (*which, rows, identity, epoch.checkpoint),
        )

    def _last_identity(self, database: sqlite3.Connection, table: str) -> str | None:
        """Return what a table had before it was rebuilt, if it was."""
        if _is_empty(database, table):
            return None
        query = (
            f"SELECT identity FROM {self._place} WHERE target = ? AND identity NOT NULL"
            f" AND identity NOT IN {_MARKED} ORDER BY committed_at DESC LIMIT 1"
        )
        last: str | None = first_value(database, query, table)
        return last

    def _columns(self, database: sqlite3.Connection) -> list[str]:
        query = "SELECT lower(name) FROM pragma_table_info(?, 'main')"
        with closing(database.execute(query, (self._name,))) as found:
            return [str(name) for (name,) in found]

    def _create(self, database: sqlite3.Connection) -> None:
        # Processes of earlier versions add rows without a target.
        database.execute(
            f"CREATE TABLE {self._place} ("
            f"target TEXT COLLATE NOCASE NOT NULL DEFAULT '{ANY_TABLE}',"
            " query TEXT, batch INTEGER, rows INTEGER NOT NULL,"
            " committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, identity TEXT,"
            " checkpoint TEXT, PRIMARY KEY (target, query, batch)) WITHOUT ROWID"
        )


def first_value(database: sqlite3.Connection, query: str, *values: object) -> Any:  # noqa: ANN401 - any column's
    """Return the first value of the first row; None if there is none."""
    with closing(database.execute(query, values)) as found:
        row = found.fetchone()
    return None if row is None else row[0]


def _identity_of(database: sqlite3.Connection, table: str) -> str | None:
    """Return the table's identity; None if it has no mark."""
    query = (
        "SELECT substr(name, ?) FROM main.sqlite_master WHERE type = 'trigger'"
        " AND tbl_name = ? COLLATE NOCASE AND substr(name, 1, ?) = ?"
    )
    which = (len(_MARK) + 1, table, len(_MARK), _MARK)
    identity: str | None = first_value(database, query, *which)
    return identity


def _mark(database: sqlite3.Connection, table: str, earlier: str | None) -> str | None:
    """Mark a table that has no mark, with the identity that it had earlier, if any.

    Return it; None for views and virtual tables, which can't be marked.
    """
    identity = earlier or uuid4().hex
    name = quoted(f"{_MARK}{identity}")
    try:
        # A trigger of inserts or deletes would make those of many rows slower.
        database.execute(
            f"CREATE TRIGGER main.{name} AFTER UPDATE ON {quoted(table)} WHEN 0"
            " BEGIN SELECT 1; END"
        )
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            return None
        raise
    return identity


def _is_empty(database: sqlite3.Connection, table: str) -> bool:
    query = f"SELECT 1 FROM main.{quoted(table)} LIMIT 1"
    return first_value(database, query) is None
