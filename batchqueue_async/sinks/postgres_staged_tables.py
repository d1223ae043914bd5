"""The tables that the staged PostgreSQL sink keeps beside its target."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from batchqueue_async import BatchQueueError

from .epochs import Epoch
from .postgres_staged_statements import ATTEMPTS, FENCES, KEY
from .postgres_target import LONGEST_NAME, Target, schema_on_path
from .table_names import quoted

if TYPE_CHECKING:
    import asyncpg

_SUFFIX = "_staged"
_HAS_COLUMN = """
    SELECT bool_or(attname = $2) FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""


class StagedTables:
    """Finds the tables or makes them, and knows which fences count.

    Args:
        target: The table that is filled.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.staging = f"{target.name}{_SUFFIX}"
        if len(self.staging.encode()) > LONGEST_NAME:
            self.staging = _other_name(target.name)
        self.keys = [target.key]
        if target.key == target.name:
            # Earlier versions noted a table as it was spelled.
            self.keys.append(f"{target.schema}.{target.name}")
        # Fences by the place of their table, with the keys that mean this target.
        self._fences: list[tuple[str, list[str]]] = []

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Make what is missing.

        Raises:
            asyncpg.PostgresError: It may not be made.
        """
        is_staging = await self._is_staging(connection)
        if is_staging is False:
            # A table of somebody else's, whose name ends like that.
            self.staging = _other_name(self.target.name)
            is_staging = await self._is_staging(connection)
        if is_staging is None:
            await self._create(connection)
        elif not is_staging:
            msg = f"table {self.target.beside(self.staging)} is no staging table"
            raise BatchQueueError(msg)
        self._fences = [(self.target.beside(FENCES), self.keys)]
        schema = await schema_on_path(connection, FENCES)
        on_path = await schema_on_path(connection, self.target.name)
        if schema not in {None, self.target.schema} and on_path == self.target.schema:
            # Earlier versions looked there, if the table was named without a schema.
            place = f"{quoted(str(schema))}.{quoted(FENCES)}"
            self._fences.append((place, [self.target.name]))

    async def has_fence(self, connection: asyncpg.Connection, epoch: Epoch) -> bool:
        """Return whether the epoch is published, by this version or an earlier one."""
        for place, keys in self._fences:
            query = (
                f"SELECT 1 FROM {place}"
                " WHERE target = ANY($1::TEXT[]) AND query = $2 AND batch = $3"
            )
            if await connection.fetchval(query, keys, epoch.query, epoch.batch):
                return True
        return False

    async def _is_staging(self, connection: asyncpg.Connection) -> bool | None:
        place = self.target.beside(self.staging)
        found: bool | None = await connection.fetchval(_HAS_COLUMN, place, KEY)
        return found

    async def _create(self, connection: asyncpg.Connection) -> None:
        fences, attempts = self.target.beside(FENCES), self.target.beside(ATTEMPTS)
        async with connection.transaction():
            # Two that make them at once would collide in the catalogue.
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('batchqueue_async staging'))"
            )
            await connection.execute(f"""
                CREATE TABLE IF NOT EXISTS {fences} (
                    target TEXT, query TEXT, batch BIGINT, rows BIGINT NOT NULL,
                    published_at TIMESTAMPTZ NOT NULL DEFAULT now(),
                    PRIMARY KEY (target, query, batch));
                CREATE TABLE IF NOT EXISTS {attempts} (
                    name UUID PRIMARY KEY, target TEXT NOT NULL, query TEXT NOT NULL,
                    batch BIGINT NOT NULL, run TEXT NOT NULL,
                    started_at TIMESTAMPTZ NOT NULL DEFAULT now());
                CREATE INDEX IF NOT EXISTS batchqueue_attempts_of_epoch
                    ON {attempts} (target, query, batch)""")
            if await self._is_staging(connection) is None:
                place = self.target.beside(self.staging)
                await connection.execute(f"""
                    CREATE UNLOGGED TABLE {place} AS SELECT NULL::UUID AS {KEY}, *
                        FROM {self.target.place} WITH NO DATA;
                    CREATE INDEX ON {place} ({KEY})""")


def _other_name(table: str) -> str:
    """Return a name for the staging table where the plain one is too long, or taken."""
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    room = LONGEST_NAME - len(_SUFFIX) - len(digest) - 1
    start = table.encode()[:room].decode(errors="ignore")
    return f"{start}_{digest}{_SUFFIX}"
