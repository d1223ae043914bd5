"""What the PostgreSQL sink says to the server."""

from __future__ import annotations

from collections.abc import Sequence

from .checks import RESERVED
from .postgres_target import Target
from .table_names import quoted


class Statements:
    """The SQL for one table and its staging tables.

    Args:
        target: The table.
        columns: The columns that are written.
        on_conflict: The end of the INSERT.
    """

    def __init__(
        self, target: Target, columns: Sequence[str], on_conflict: str
    ) -> None:
        self.target = target
        self._columns = ", ".join(map(quoted, columns))
        self._on_conflict = on_conflict
        self.find_staging = """
            SELECT relname::text FROM pg_class
            JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname = $1 AND relkind = 'r'
                AND (starts_with(relname, $2) OR starts_with(relname, $3))"""
        self.has_staging = "SELECT to_regclass($1) IS NOT NULL"

    def create_staging(self, name: str) -> str:
        """Return what makes a table like the target, and cheaper."""
        return (
            f"CREATE UNLOGGED TABLE {self.target.beside(name)} AS SELECT"
            f" 0 AS {RESERVED}, {self._columns} FROM {self.target.place} WITH NO DATA"
        )

    def count(self, name: str) -> str:
        """Return what counts the rows of the writes $1."""
        return (
            f"SELECT count(*) FROM {self.target.beside(name)}"
            f" WHERE {RESERVED} = ANY($1::INT[])"
        )

    def publish(self, name: str) -> str:
        """Return what moves the rows of the writes $1 into the target."""
        return (
            f"INSERT INTO {self.target.place} ({self._columns}) SELECT {self._columns}"
            f" FROM {self.target.beside(name)} WHERE {RESERVED} = ANY($1::INT[])"
            f" {self._on_conflict}"
        )

    def drop_staging(self, name: str) -> str:
        """Return what removes a staging table."""
        return f"DROP TABLE IF EXISTS {self.target.beside(name)}"
