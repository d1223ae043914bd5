"""The fences on a PostgreSQL server: which epochs are visible, and in which table."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from batchqueue_async import BatchQueueError

from ..epochs import Epoch
from ..table_names import ANY_TABLE, quoted, warn_of_old_fence
from .target import Target, schema_on_path

if TYPE_CHECKING:
    from .connections import Connection

EPOCHS = "batchqueue_epochs"
PUBLISHED = "batchqueue_published"
# What the other kind of sink notes counts, too: a query may go from one to the other.
_OTHERS = {EPOCHS: PUBLISHED, PUBLISHED: EPOCHS}
_OLD_COLUMNS = {"query", "batch", "rows"}
_COLUMNS = """
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""
_PRIMARY_KEY = """
    SELECT conname::text FROM pg_constraint
    WHERE conrelid = to_regclass($1) AND contype = 'p'"""


class Fences:
    """A table beside the target, with a row for each epoch that is visible.

    Any number of targets in one schema share it.

    Args:
        name: The table's name: that of the epoch sinks, of the staged ones, or one of
            a user's, which stands alone.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = ""
        # Tables of fences, with what stands for the target in each. New ones go into
        # the first.
        self._places: list[tuple[str, list[str]]] = []

    async def prepare(self, connection: Connection, target: Target) -> None:
        """Make the table, or give one of the old layout the new one."""
        places = [(target.beside(self._name), [*target.keys, ANY_TABLE])]
        schema = await schema_on_path(connection, self._name)
        on_path = await schema_on_path(connection, target.name)
        if schema not in {None, target.schema} and on_path == target.schema:
            # For a table without a schema, earlier versions looked and wrote there: the
            # staged sink the table as it was spelled, the epoch sink none.
            place = f"{quoted(str(schema))}.{quoted(self._name)}"
            key = target.name if self._name == PUBLISHED else ANY_TABLE
            places.append((place, [key]))
        columns = [await self._columns(connection, place) for place, _ in places]
        if not all("target" in names for names in columns):
            async with connection.transaction():
                # Two that make it at once would collide in the catalogue.
                await connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtext('batchqueue_async fences'))"
                )
                for place, _ in places:
                    await self._bring_up(connection, place)
        if self._name in _OTHERS:
            other = target.beside(_OTHERS[self._name])
            if "target" in await self._columns(connection, other):
                places.append((other, target.keys))
        self._key, self._places = target.key, places

    async def has(self, connection: Connection, epoch: Epoch) -> bool:
        """Return whether the epoch's fence is there; log if it doesn't know its table.

        Call `prepare` first.
        """
        for place, keys in self._places:
            found = await connection.fetchval(
                f"SELECT max(target) FROM {place}"
                " WHERE target = ANY($1::TEXT[]) AND query = $2 AND batch = $3",
                keys,
                *astuple(epoch),
            )
            if found is not None:
                if found == ANY_TABLE:
                    warn_of_old_fence(epoch, self._key)
                return True
        return False

    async def add(self, connection: Connection, epoch: Epoch, rows: int) -> bool:
        """Add the epoch's fence; return False if there is one.

        Waits for a transaction that adds the same one.
        """
        added = await connection.execute(
            f"INSERT INTO {self._places[0][0]} (target, query, batch, rows)"
            " VALUES ($1, $2, $3, $4) ON CONFLICT (target, query, batch) DO NOTHING",
            self._key,
            *astuple(epoch),
            rows,
        )
        return added != "INSERT 0 0"

    async def _columns(self, connection: Connection, place: str) -> set[str]:
        return {row[0] for row in await connection.fetch(_COLUMNS, place)}

    async def _bring_up(self, connection: Connection, place: str) -> None:
        columns = await self._columns(connection, place)
        if not columns:
            # The default is for processes that know the old layout only.
            time = "published_at" if self._name == PUBLISHED else "committed_at"
            await connection.execute(f"""
                CREATE TABLE {place} (
                    target TEXT NOT NULL DEFAULT '{ANY_TABLE}',
                    query TEXT, batch BIGINT, rows BIGINT NOT NULL,
                    {time} TIMESTAMPTZ NOT NULL DEFAULT now(),
                    PRIMARY KEY (target, query, batch))""")
        elif "target" not in columns:
            if not columns >= _OLD_COLUMNS:
                msg = f"table {place} is none of fences: it has {sorted(columns)}"
                raise BatchQueueError(msg)
            key = await connection.fetchval(_PRIMARY_KEY, place)
            drop = f"DROP CONSTRAINT {quoted(key)}, " if key else ""
            await connection.execute(
                f"ALTER TABLE {place}"
                f" ADD COLUMN target TEXT NOT NULL DEFAULT '{ANY_TABLE}'"
            )
            await connection.execute(
                f"ALTER TABLE {place} {drop}ADD PRIMARY KEY (target, query, batch)"
            )
