"""What the staged PostgreSQL sink says to the server."""

from __future__ import annotations

from collections.abc import Sequence

from .postgres_target import Target
from .table_names import quoted

KEY = "batchqueue_attempt"
"""The column of the staging table that says whose row it is."""

ATTEMPTS = "batchqueue_attempts"
FENCES = "batchqueue_published"

# Attempts that nobody published or discarded in this time died with their driver.
_KEPT = "INTERVAL '7 days'"


class StagedStatements:
    """The SQL for one table, its staging table, and the two tables of accounts.

    In what registers $1 is the target's key; in what forgets, all that it ever had.

    Args:
        target: The table.
        staging: The name of its staging table, in the same schema.
        on_conflict: The end of the INSERT that publishes.
    """

    def __init__(self, target: Target, staging: str, on_conflict: str = "") -> None:
        self.target = target
        self.staging_name = staging
        self._on_conflict = on_conflict
        self._staging = target.beside(staging)
        attempts = target.beside(ATTEMPTS)
        is_epoch = "target = ANY($1::TEXT[]) AND query = $2 AND batch = $3"
        self.add_fence = (
            f"INSERT INTO {target.beside(FENCES)} (target, query, batch, rows)"
            " VALUES ($1, $2, $3, $4)"
        )
        self.register = (
            f"INSERT INTO {attempts} (target, query, batch, run, name)"
            " VALUES ($1, $2, $3, $4, $5)"
        )
        self.register_announced = (
            f"INSERT INTO {attempts} (target, query, batch, run, name)"
            " SELECT $1::TEXT, $2::TEXT, $3::BIGINT, $4::TEXT, $5::UUID"
            f" WHERE EXISTS (SELECT 1 FROM {attempts} WHERE name = $6::UUID)"
        )
        self.is_registered = f"SELECT 1 FROM {attempts} WHERE name = $1"
        self.forget = f"DELETE FROM {attempts} WHERE name = $1"
        self.forget_run = (
            f"DELETE FROM {attempts} WHERE {is_epoch} AND run = $4 RETURNING name"
        )
        self.forget_epoch = (
            f"DELETE FROM {attempts} WHERE {is_epoch} OR target = ANY($1::TEXT[])"
            f" AND started_at < now() - {_KEPT} RETURNING name"
        )
        self.count = f"SELECT count(*) FROM {self._staging} WHERE {KEY} = ANY($1)"
        self.clean = f"DELETE FROM {self._staging} WHERE {KEY} = ANY($1)"
        # Sealing shares the lock; publishing and discarding have it for themselves.
        lock = "hashtextextended($1::TEXT || chr(10) || $2::TEXT, $3)"
        self.share_epoch = f"SELECT pg_advisory_xact_lock_shared({lock})"
        self.lock_epoch = f"SELECT pg_advisory_xact_lock({lock})"

    def publish(self, columns: Sequence[str]) -> str:
        """Return what copies the rows of the attempts $1 into the target."""
        names = ", ".join(map(quoted, columns))
        return (
            f"INSERT INTO {self.target.place} ({names}) SELECT {names}"
            f" FROM {self._staging} WHERE {KEY} = ANY($1) {self._on_conflict}"
        )
