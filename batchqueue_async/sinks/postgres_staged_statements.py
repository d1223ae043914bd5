"""What the staged PostgreSQL sink says to the server."""

from __future__ import annotations

from collections.abc import Sequence

from .postgres_statements import literal, quoted

KEY = "batchqueue_attempt"
"""The column of the staging table that says whose row it is."""

# Attempts that nobody published or discarded in this time died with their driver.
_KEPT = "INTERVAL '7 days'"


class StagedStatements:
    """The SQL for one table, its staging table, and the two tables of accounts.

    Args:
        table: "table" or "schema.table".
        on_conflict: The end of the INSERT that publishes.
    """

    def __init__(self, table: str, on_conflict: str = "") -> None:
        schema, _, name = table.rpartition(".")
        self.schema = schema or None
        self.staging_name = f"{name}_staged"
        self._target = self._place(name)
        self._on_conflict = on_conflict
        self._staging = self._place(self.staging_name)
        self._attempts = self._place("batchqueue_attempts")
        self._fences = self._place("batchqueue_published")
        is_epoch = f"target = '{literal(table)}' AND query = $1 AND batch = $2"
        target = f"'{literal(table)}'"
        self.find_fence = f"SELECT 1 FROM {self._fences} WHERE {is_epoch}"
        self.add_fence = (
            f"INSERT INTO {self._fences} (target, query, batch, rows)"
            f" VALUES ({target}, $1, $2, $3)"
        )
        self.register = (
            f"INSERT INTO {self._attempts} (target, query, batch, run, name)"
            f" VALUES ({target}, $1, $2, $3, $4)"
        )
        self.register_announced = (
            f"INSERT INTO {self._attempts} (target, query, batch, run, name)"
            f" SELECT {target}, $1::TEXT, $2::BIGINT, $3::TEXT, $4::UUID"
            f" WHERE EXISTS (SELECT 1 FROM {self._attempts} WHERE name = $5::UUID)"
        )
        self.is_registered = f"SELECT 1 FROM {self._attempts} WHERE name = $1"
        self.forget = f"DELETE FROM {self._attempts} WHERE name = $1"
        self.forget_run = (
            f"DELETE FROM {self._attempts} WHERE {is_epoch} AND run = $3 RETURNING name"
        )
        self.forget_epoch = (
            f"DELETE FROM {self._attempts} WHERE {is_epoch} OR target = {target}"
            f" AND started_at < now() - {_KEPT} RETURNING name"
        )
        self.count = f"SELECT count(*) FROM {self._staging} WHERE {KEY} = ANY($1)"
        self.clean = f"DELETE FROM {self._staging} WHERE {KEY} = ANY($1)"
        # Sealing shares the lock; publishing and discarding have it for themselves.
        lock = f"hashtextextended({target} || chr(10) || $1, $2)"
        self.share_epoch = f"SELECT pg_advisory_xact_lock_shared({lock})"
        self.lock_epoch = f"SELECT pg_advisory_xact_lock({lock})"

    @property
    def create(self) -> str:
        """What makes all tables but the target, where they are missing."""
        # Two that make them at once would collide in the catalogue.
        return f"""
            DO $$ BEGIN
                PERFORM pg_advisory_xact_lock(hashtext('batchqueue_async staging'));
                CREATE TABLE IF NOT EXISTS {self._fences} (
                    target TEXT, query TEXT, batch BIGINT, rows BIGINT NOT NULL,
                    published_at TIMESTAMPTZ NOT NULL DEFAULT now(),
                    PRIMARY KEY (target, query, batch));
                CREATE TABLE IF NOT EXISTS {self._attempts} (
                    name UUID PRIMARY KEY, target TEXT NOT NULL, query TEXT NOT NULL,
                    batch BIGINT NOT NULL, run TEXT NOT NULL,
                    started_at TIMESTAMPTZ NOT NULL DEFAULT now());
                CREATE INDEX IF NOT EXISTS batchqueue_attempts_of_epoch
                    ON {self._attempts} (target, query, batch);
                IF to_regclass('{literal(self._staging)}') IS NULL THEN
                    CREATE UNLOGGED TABLE {self._staging} AS
                        SELECT NULL::UUID AS {KEY}, * FROM {self._target} WITH NO DATA;
                    CREATE INDEX ON {self._staging} ({KEY});
                END IF;
            END $$"""

    @property
    def exists(self) -> str:
        """What asks whether `create` has run: cheaper than running it."""
        return f"SELECT to_regclass('{literal(self._staging)}') IS NOT NULL"

    def publish(self, columns: Sequence[str]) -> str:
        """Return what copies the rows of the attempts $1 into the target."""
        names = ", ".join(map(quoted, columns))
        return (
            f"INSERT INTO {self._target} ({names}) SELECT {names} FROM {self._staging}"
            f" WHERE {KEY} = ANY($1) {self._on_conflict}"
        )

    def _place(self, name: str) -> str:
        return f"{quoted(self.schema)}.{quoted(name)}" if self.schema else quoted(name)
