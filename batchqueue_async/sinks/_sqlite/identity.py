"""By what a table of a SQLite file is known after it was renamed, or made again.

SQLite numbers tables anew with each VACUUM, so a table gets a mark: a trigger that
never fires. It goes with a table that is dropped, stays with one that is renamed, and
is in backups and dumps.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from uuid import uuid4

from ..table_names import quoted

_MARK = "batchqueue_identity_"
# For the identities of tables that are there, under whatever name.
MARKED = (
    f"(SELECT substr(name, {len(_MARK) + 1}) FROM main.sqlite_master"
    f" WHERE type = 'trigger' AND substr(name, 1, {len(_MARK)}) = '{_MARK}')"
)


def identity_of(database: sqlite3.Connection, table: str) -> str | None:
    """Return the table's identity; None if it has no mark."""
    query = (
        "SELECT name FROM main.sqlite_master WHERE type = 'trigger'"
        " AND tbl_name = ? COLLATE NOCASE AND substr(name, 1, ?) = ?"
    )
    which = (table, len(_MARK), _MARK)
    with closing(database.execute(query, which)) as found:
        row = found.fetchone()
    return None if row is None else str(row[0])[len(_MARK) :]


def mark(
    database: sqlite3.Connection, table: str, identity: str | None = None
) -> str | None:
    """Mark a table that has no mark, in the transaction that is open.

    Args:
        database: The connection.
        table: The name that it was created with.
        identity: The one that it had before; None for a new one.

    Returns:
        The identity; None for views and virtual tables, which can't be marked.
    """
    identity = identity or uuid4().hex
    name = quoted(f"{_MARK}{identity}")
    try:
        # Of updates: a trigger of inserts or deletes would make bulk ones slower.
        database.execute(
            f"CREATE TRIGGER main.{name} AFTER UPDATE ON {quoted(table)} WHEN 0"
            " BEGIN SELECT 1; END"
        )
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            return None
        raise
    return identity


def is_empty(database: sqlite3.Connection, table: str) -> bool:
    query = f"SELECT 1 FROM main.{quoted(table)} LIMIT 1"
    with closing(database.execute(query)) as found:
        return found.fetchone() is None
