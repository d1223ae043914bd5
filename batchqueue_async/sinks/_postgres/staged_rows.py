"""Rows of many processes that wait beside their table, and the register of those."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, UUID, uuid5

import asyncpg

from batchqueue_async import BatchQueueError
from batchqueue_async._validation import refuse

from ..epochs import Epoch, key_of
from ..staged import Attempt, refuse_known
from .fences import lock_epoch
from .staging_table import StagingTable
from .target import LONGEST_NAME, Target, column_types

if TYPE_CHECKING:
    from .connections import Connection

_KEY = "batchqueue_attempt"
_SUFFIX = "_staged"
_ATTEMPTS = "batchqueue_attempts"
_IS_ALIKE = """
    WITH
        target AS (SELECT attname, atttypid, atttypmod FROM pg_attribute
            WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped),
        staging AS (SELECT attname, atttypid, atttypmod FROM pg_attribute
            WHERE attrelid = to_regclass($2) AND attnum > 0 AND NOT attisdropped
            AND attname <> $3)
    SELECT to_regclass($2) IS NOT NULL AND to_regclass($4) IS NOT NULL
        AND NOT EXISTS (TABLE target EXCEPT TABLE staging)
        AND NOT EXISTS (TABLE staging EXCEPT TABLE target)"""
# Earlier versions made one, of the mark's column alone.
_INDEX = """
    SELECT indexrelid::regclass::text FROM pg_index
    JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] AND indnatts = 1
    WHERE indrelid = to_regclass($1) AND attname = $2"""
# Whose lock would have to be waited for is asked first: each refusal of a lock is a
# line in the server's log.
_MAY_BE_EMPTIED = """
    SELECT CASE WHEN pg_relation_size(to_regclass($1)) <= $2 THEN false
        ELSE NOT EXISTS (SELECT FROM pg_locks
            WHERE relation = to_regclass($1) AND pid <> pg_backend_pid()) END"""
# Bytes of a staging table. So much is read, and its rows deleted, in milliseconds.
_SMALL = 2**23
# Attempts that nobody published or discarded in this time died with their driver.
_KEPT = "INTERVAL '7 days'"


class StagedRows:
    """A staging table, and the register of those who write to it.

    An attempt registers before its first row. Who ends an epoch or a run strikes off
    what is registered, so that an attempt that seals too late finds itself missing.

    The staging table has no index, which would double the server's work for each row:
    it is read as a whole, and so kept short. Who ends an epoch empties it if nobody
    else has registered.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._register = target.beside(_ATTEMPTS)
        name = f"{target.name}{_SUFFIX}"
        if len(name.encode()) > LONGEST_NAME:
            name = _other_name(target.name)
        self.staging = StagingTable(target, name, _KEY)

    async def prepare(self, connection: Connection) -> None:
        if await self._is_others(connection):
            # Somebody else's table has that name.
            self.staging = StagingTable(
                self._target, _other_name(self._target.name), _KEY
            )
            if await self._is_others(connection):
                msg = f"table {self.staging.place} is no staging table"
                raise BatchQueueError(msg)
        await self.bring_up(connection)
        for (index,) in await connection.fetch(_INDEX, self.staging.place, _KEY):
            # Waits for attempts that are writing.
            await connection.execute(f"DROP INDEX IF EXISTS {index}")

    async def bring_up(self, connection: Connection) -> None:
        """Make what is missing, and anew a staging table of other columns.

        Rows in that are of attempts that died, or whose `publish` will miss them.
        """
        shape = (self._target.place, self.staging.place, _KEY, self._register)
        if await connection.fetchval(_IS_ALIKE, *shape):
            return
        # Two that make them at once would collide in the catalogue.
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtext('batchqueue_async staging'))"
        )
        if not await column_types(connection, self._register):
            await connection.execute(f"""
                CREATE TABLE IF NOT EXISTS {self._register} (
                    name UUID PRIMARY KEY, target TEXT NOT NULL,
                    query TEXT NOT NULL, batch BIGINT NOT NULL, run TEXT NOT NULL,
                    started_at TIMESTAMPTZ NOT NULL DEFAULT now());
                CREATE INDEX IF NOT EXISTS batchqueue_attempts_of_epoch
                    ON {self._register} (target, query, batch)""")
        if await connection.fetchval(_IS_ALIKE, *shape):
            return
        columns = await self.columns(connection)
        if _KEY in columns:
            rule = f"without a column {_KEY}, which the staging table has"
            refuse(f"table {self._target.place}", rule, columns)
        # Waits for attempts that are writing.
        await self.staging.drop(connection)
        await self.staging.create(connection, "NULL::UUID", "*")

    async def announce(self, connection: Connection, epoch: Epoch, run: str) -> None:
        """Register a run, by a name among those of attempts."""
        await self._add(connection, epoch, run, _name_of_run(epoch, run))

    async def register(self, connection: Connection, attempt: Attempt) -> None:
        """Register an attempt; the transaction has to end before its first row."""
        epoch, run = attempt.epoch, attempt.run
        if attempt.is_announced:
            # The lock comes first, so that an end of the run that was committed is
            # seen.
            await lock_epoch(connection, self._target, epoch, is_shared=True)
            if not await self._has(connection, _name_of_run(epoch, run)):
                msg = f"{attempt} comes too late: its run was published or discarded"
                raise BatchQueueError(msg)
        if not await self._add(connection, epoch, run, mark_of(attempt.name)):
            refuse_known(attempt)

    async def has(self, connection: Connection, attempt: Attempt) -> bool:
        return await self._has(connection, mark_of(attempt.name))

    async def strike_off(self, connection: Connection, attempt: Attempt) -> None:
        await connection.execute(
            f"DELETE FROM {self._register} WHERE name = $1", mark_of(attempt.name)
        )

    async def clear(
        self, connection: Connection, epoch: Epoch, run: str | None = None
    ) -> None:
        """Forget the epoch's attempts, or one run's, and delete their rows.

        With the epoch goes what died with its driver, of whatever epoch.
        """
        old = f" OR target = ANY($1::TEXT[]) AND started_at < now() - {_KEPT}"
        chosen, which = (old, []) if run is None else (" AND run = $4", [run])
        over = await connection.fetch(
            f"DELETE FROM {self._register} WHERE target = ANY($1::TEXT[])"
            f" AND query = $2 AND batch = $3{chosen} RETURNING name",
            self._target.keys,
            *key_of(epoch),
            *which,
        )
        if over and not await self._emptied(connection):
            await connection.execute(
                f"DELETE FROM {self.staging.place} WHERE {_KEY} = ANY($1)",
                [record["name"] for record in over],
            )

    async def _emptied(self, connection: Connection) -> bool:
        """Remove all rows at once; return False if there are few, or others need some.

        Never waits for a lock: this transaction holds the epoch's, for which an attempt
        that is writing may be waiting.
        """
        place = self.staging.place
        if not await connection.fetchval(_MAY_BE_EMPTIED, place, _SMALL):
            return False
        try:
            async with connection.transaction():
                await connection.execute(
                    f"LOCK TABLE {place} IN ACCESS EXCLUSIVE MODE NOWAIT"
                )
                # Every attempt registers before it writes. So if none is registered no
                # rows are needed, and a new one can't write before this commits.
                if await self._has_others(connection):
                    return False
                await connection.execute(f"TRUNCATE {place}")
        except (asyncpg.LockNotAvailableError, asyncpg.InsufficientPrivilegeError):
            return False
        return True

    async def _has_others(self, connection: Connection) -> bool:
        query = f"SELECT 1 FROM {self._register} WHERE target = ANY($1::TEXT[]) LIMIT 1"
        return await connection.fetchval(query, self._target.keys) is not None

    async def _add(
        self, connection: Connection, epoch: Epoch, run: str, name: UUID
    ) -> bool:
        """Register a name; return False if it is registered."""
        added = await connection.execute(
            f"INSERT INTO {self._register} (target, query, batch, run, name)"
            " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO NOTHING",
            self._target.key,
            *key_of(epoch),
            run,
            name,
        )
        return added != "INSERT 0 0"

    async def _has(self, connection: Connection, name: UUID) -> bool:
        query = f"SELECT 1 FROM {self._register} WHERE name = $1"
        return await connection.fetchval(query, name) is not None

    async def _is_others(self, connection: Connection) -> bool:
        columns = await column_types(connection, self.staging.place)
        return bool(columns) and _KEY not in columns

    async def columns(self, connection: Connection) -> list[str]:
        place = self._target.place
        found = [*await column_types(connection, place)]
        if not found:
            msg = f"table {place} was dropped, or has no columns"
            raise BatchQueueError(msg)
        return found


def mark_of(name: str) -> UUID:
    """Return what stands for an attempt: of 16 bytes, since each row carries it.

    Spark's attempts have a UUID's digits for names. Others may have any, which differ
    from the names of runs, because those have a NUL in them.
    """
    with suppress(ValueError):
        if (mark := UUID(name)).hex == name:
            return mark
    return uuid5(NAMESPACE_OID, name)


def _name_of_run(epoch: Epoch, run: str) -> UUID:
    return uuid5(NAMESPACE_OID, f"{epoch.query}\0{epoch.batch}\0{run}")


def _other_name(table: str) -> str:
    """Return a name for the staging table where the plain one is too long, or taken."""
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    room = LONGEST_NAME - len(_SUFFIX) - len(digest) - 1
    start = table.encode()[:room].decode(errors="ignore")
    return f"{start}_{digest}{_SUFFIX}"
