"""Rows that wait in a table beside their target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from ..checks import refuse_on_conflict
from ..names import quoted
from .target import Target

if TYPE_CHECKING:
    from .connections import Connection


# What the server says of a statement's text, not of rights, locks or the table.
_WRONG = (
    asyncpg.PostgresSyntaxError,
    asyncpg.InvalidColumnReferenceError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedObjectError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.AmbiguousColumnError,
    asyncpg.DatatypeMismatchError,
)


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A staging table: unlogged, so that a server that crashes empties it.

    Its column `mark` says what brought a row: an attempt, or one of its writes.
    """

    target: Target
    name: str
    mark: str

    @property
    def place(self) -> str:
        return self.target.beside(self.name)

    async def create(self, connection: Connection, mark: str, columns: str) -> None:
        """Make it, with columns like the target's and an example of a mark."""
        await connection.execute(
            f"CREATE UNLOGGED TABLE {self.place} AS SELECT {mark} AS {self.mark},"
            f" {columns} FROM {self.target.place} WITH NO DATA"
        )

    async def lock(self, connection: Connection) -> None:
        """Keep it as it is until the transaction ends; others may write, too."""
        await connection.execute(f"LOCK TABLE {self.place} IN ROW EXCLUSIVE MODE")

    async def drop(self, connection: Connection) -> None:
        await connection.execute(f"DROP TABLE IF EXISTS {self.place}")

    async def require_insert(
        self, connection: Connection, columns: Sequence[str], on_conflict: str
    ) -> None:
        """Have the server plan what `publish` will execute, and no more.

        What is wrong with the rest of it is told when it is executed: whoever stages
        need not be a role that may insert.

        Raises:
            ValueError: The server refuses `on_conflict`.
        """
        if not on_conflict:
            return
        insert = self._insert(columns)
        try:
            async with connection.transaction():
                none = f"{self._from} IS NULL"
                # Not `execute`, which without values takes several statements.
                await connection.fetch(f"EXPLAIN {insert} {none} {on_conflict}")
        except _WRONG as error:
            refuse_on_conflict(on_conflict, f"table {self.target.place}", error)
        except asyncpg.PostgresError:
            return

    async def publish(
        self,
        connection: Connection,
        marks: Sequence[Any],
        columns: Sequence[str],
        on_conflict: str,
        rows: int,
    ) -> int:
        """Copy what has one of these marks into the target; return how many there are.

        If that isn't the number that there should be, the transaction has to be undone.
        As many as are inserted need no count.
        """
        if await connection.fetchval("SELECT to_regclass($1)", self.place) is None:
            return 0
        insert = f"{self._insert(columns)} {self._marked} {on_conflict}"
        try:
            done = await connection.execute(insert, marks)
        except asyncpg.UndefinedTableError as error:
            # It was dropped while this waited for a lock.
            if rows and self.name in str(error):
                return 0
            raise
        if done == f"INSERT 0 {rows}":
            return rows
        # Fewer were inserted: `on_conflict` or a trigger has left some out, or they are
        # lost. A count tells which.
        found: int = await connection.fetchval(f"SELECT count(*) {self._marked}", marks)
        return found

    def _insert(self, columns: Sequence[str]) -> str:
        names = ", ".join(map(quoted, columns))
        return f"INSERT INTO {self.target.place} ({names}) SELECT {names}"

    @property
    def _from(self) -> str:
        return f"FROM {self.place} WHERE {self.mark}"

    @property
    def _marked(self) -> str:
        return f"{self._from} = ANY($1)"
