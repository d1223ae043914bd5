"""What attempts of `PostgresEpochSink` that died have left: a staging table each."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg

from ..checks import RESERVED
from ..epoch_attempts import prefix
from ..epochs import Epoch
from .fences import EPOCHS
from .staging_table import StagingTable
from .target import Target

if TYPE_CHECKING:
    from .connections import Connection

_STAGING_TABLES = """
    SELECT relname::text FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relkind = 'r'
        AND EXISTS (SELECT FROM unnest($2::TEXT[]) AS start
            WHERE starts_with(relname, start))"""


def scope(target: Target, fences: str) -> str:
    """Return what tells an epoch's attempts from those of other tables beside them."""
    return f"{target.place}\0{fences}"


async def left_tables(
    connection: Connection, target: Target, *prefixes: str
) -> list[StagingTable]:
    """Return the staging tables of attempts with these beginnings of their names."""
    found = await connection.fetch(_STAGING_TABLES, target.schema, prefixes)
    return [StagingTable(target, name, RESERVED) for (name,) in found]


async def drop_left(connection: Connection, target: Target, epoch: Epoch) -> None:
    """Drop those of an epoch that is over, but none that is in use.

    This transaction holds the epoch's lock, for which who uses one may wait.
    """
    start = prefix(epoch, scope(target, EPOCHS))
    for table in await left_tables(connection, target, start):
        with suppress(
            asyncpg.LockNotAvailableError,
            asyncpg.InsufficientPrivilegeError,
            asyncpg.UndefinedTableError,
        ):
            async with connection.transaction():
                await connection.execute(
                    f"LOCK TABLE {table.place} IN ACCESS EXCLUSIVE MODE NOWAIT"
                )
                await table.drop(connection)
