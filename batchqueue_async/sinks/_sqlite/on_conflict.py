"""A wrong `on_conflict` is refused when an epoch begins, not when it ends."""

from __future__ import annotations

import sqlite3

from ..checks import refuse_on_conflict


def require_insert(
    database: sqlite3.Connection, insert: str, on_conflict: str, table: str
) -> None:
    """Have SQLite compile an INSERT out of a SELECT with this end, and no more.

    Raises:
        ValueError: SQLite refuses it with this end.
        sqlite3.OperationalError: SQLite refuses it without, too.
    """
    if not on_conflict:
        return
    try:
        # Without WHERE it would read ON as the beginning of a join's condition.
        database.execute(f"EXPLAIN {insert} WHERE true {on_conflict}").close()
    except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code == sqlite3.SQLITE_ERROR:  # no other is about what it says
            database.execute(f"EXPLAIN {insert} WHERE true").close()
            refuse_on_conflict(on_conflict, f"table {table}", error)
