"""Which table a name means, and what stands for it in fences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from ..names import as_sql_reads, quoted

if TYPE_CHECKING:
    from .connections import Connection

_WHERE_IS = """
    SELECT nspname::text AS schema, relname::text AS name
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = to_regclass($1)"""
# A domain's values are of the type that it is based on, maybe by way of others. So an
# array of domains is one of such values.
_TYPES = """
    WITH RECURSIVE based (number, depth, name, type) AS (
        SELECT attnum, 0, attname::text, atttypid FROM pg_attribute
        WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
    UNION ALL
        SELECT number, depth + 1, name,
            CASE its.typtype WHEN 'd' THEN its.typbasetype ELSE base.typarray END
        FROM based JOIN pg_type AS its ON its.oid = type
        LEFT JOIN pg_type AS element
            ON element.oid = its.typelem AND element.typtype = 'd'
        LEFT JOIN pg_type AS base ON base.oid = element.typbasetype
        WHERE its.typtype = 'd' OR base.typarray <> 0
    )
    SELECT DISTINCT ON (number) name, type FROM based ORDER BY number, depth DESC"""
NotEncoded: Final = asyncpg.InternalClientError
"""What asyncpg raises for a column of a type that it can't encode, among others."""
# Longer ones are cut off by the server, so that two may become one.
LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class Target:
    """A table by its one full name, however it was spelled."""

    schema: str
    name: str

    @property
    def place(self) -> str:
        """The name as SQL takes it, whatever the search path."""
        return self.beside(self.name)

    @property
    def key(self) -> str:
        """What stands for the table in accounts that are kept in its schema.

        Not the schema's name, which may change. In quotes where there are dots, because
        earlier versions wrote `schema.name` there, too.
        """
        return quoted(self.name) if "." in self.name else self.name

    @property
    def keys(self) -> list[str]:
        """All that ever stood for the table there, the key of today first."""
        is_plain = self.key == self.name
        return [self.key, *([f"{self.schema}.{self.name}"] if is_plain else ())]

    def beside(self, name: str) -> str:
        return f"{quoted(self.schema)}.{quoted(name)}"


async def column_types(connection: Connection, place: str) -> dict[str, int]:
    """Return the numbers of a table's columns' types, by name; {} if it isn't there."""
    found = await connection.fetch(_TYPES, place)
    return {column["name"]: column["type"] for column in found}


async def find_target(connection: Connection, table: str) -> Target:
    """Ask the server which table a name means on this connection's search path.

    The name is taken as it is, `schema.table` or `table`; and if there is no such
    table, as SQL reads it, with double quotes.
    """
    schema, _, name = table.rpartition(".")
    spellings: list[tuple[str | None, str]] = [(schema or None, name)]
    if '"' in table and (as_read := as_sql_reads(table)) is not None:
        spellings.append(as_read)
    for spelling in spellings:
        found = await connection.fetchrow(_WHERE_IS, _place(*spelling))
        if found is not None:
            return Target(found["schema"], found["name"])
    # Has the server itself raise its error for a table that isn't there.
    await connection.execute(f"SELECT FROM {_place(*spellings[-1])} LIMIT 0")
    return await find_target(connection, table)  # it has just been made


async def schema_on_path(connection: Connection, name: str) -> str | None:
    """Return the schema of the first table of this name on the search path, if any."""
    found = await connection.fetchrow(_WHERE_IS, quoted(name))
    return None if found is None else str(found["schema"])


def _place(schema: str | None, name: str) -> str:
    return f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)
