"""Rows that wait in a table beside their target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..names import quoted
from .target import Target

if TYPE_CHECKING:
    from .connections import Connection


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
        names = ", ".join(map(quoted, columns))
        done = await connection.execute(
            f"INSERT INTO {self.target.place} ({names})"
            f" SELECT {names} {self._marked} {on_conflict}",
            marks,
        )
        if done == f"INSERT 0 {rows}":
            return rows
        # Fewer were inserted: `on_conflict` or a trigger has left some out, or they are
        # lost. A count tells which.
        found: int = await connection.fetchval(f"SELECT count(*) {self._marked}", marks)
        return found

    @property
    def _marked(self) -> str:
        return f"FROM {self.place} WHERE {self.mark} = ANY($1)"
