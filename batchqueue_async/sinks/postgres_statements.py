"""What the PostgreSQL sink says to the server."""

from __future__ import annotations

from collections.abc import Sequence


class Statements:
    """The SQL for one table, its staging tables and its fences.

    Args:
        table: "table" or "schema.table".
        columns: The columns that are written.
        on_conflict: The end of the INSERT.
        fences: The table of fences, in the table's schema.
    """

    def __init__(
        self, table: str, columns: Sequence[str], on_conflict: str, fences: str
    ) -> None:
        schema, _, name = table.rpartition(".")
        self.schema = schema or None
        self._table = self._place(name)
        self._columns = ", ".join(map(quoted, columns))
        self._on_conflict = on_conflict
        fence = self._place(fences)
        # Two that make it at once would collide in the catalogue.
        self.create_fences = f"""
            DO $$ BEGIN
                PERFORM pg_advisory_xact_lock(hashtext('batchqueue_async fences'));
                IF to_regclass('{literal(fence)}') IS NULL THEN
                    CREATE TABLE {fence} (
                        query TEXT, batch BIGINT, rows BIGINT NOT NULL,
                        committed_at TIMESTAMPTZ NOT NULL DEFAULT now(),
                        PRIMARY KEY (query, batch));
                END IF;
            END $$"""
        self.add_fence = (
            f"INSERT INTO {fence} (query, batch, rows) VALUES ($1, $2, $3)"
            " ON CONFLICT DO NOTHING"
        )
        self.find_fence = f"SELECT 1 FROM {fence} WHERE query = $1 AND batch = $2"
        self.find_staging = f"""
            SELECT relname FROM pg_class
            WHERE starts_with(relname, $1) AND relkind = 'r' AND relnamespace =
                (SELECT relnamespace FROM pg_class
                 WHERE oid = '{literal(fence)}'::regclass)"""

    def create_staging(self, name: str) -> str:
        """Return what makes a table like the target, and cheaper."""
        return (
            f"CREATE UNLOGGED TABLE {self._place(name)} AS SELECT"
            f" 0 AS batchqueue_write, {self._columns} FROM {self._table} WITH NO DATA"
        )

    def has_staging(self, name: str) -> str:
        """Return what asks whether nobody has dropped it."""
        return f"SELECT to_regclass('{literal(self._place(name))}') IS NOT NULL"

    def count(self, name: str) -> str:
        """Return what counts the rows of the writes $1."""
        return (
            f"SELECT count(*) FROM {self._place(name)}"
            " WHERE batchqueue_write = ANY($1::INT[])"
        )

    def publish(self, name: str) -> str:
        """Return what moves the rows of the writes $1 into the target."""
        return (
            f"INSERT INTO {self._table} ({self._columns}) SELECT {self._columns}"
            f" FROM {self._place(name)} WHERE batchqueue_write = ANY($1::INT[])"
            f" {self._on_conflict}"
        )

    def drop_staging(self, name: str) -> str:
        """Return what removes a staging table."""
        return f"DROP TABLE IF EXISTS {self._place(name)}"

    def _place(self, name: str) -> str:
        return f"{quoted(self.schema)}.{quoted(name)}" if self.schema else quoted(name)


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as the inside of a literal."""
    return text.replace("'", "''")
