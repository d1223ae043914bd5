"""The assignment problem: a column for each row, so that the total gain is largest.

The Hungarian method (H. W. Kuhn, 1955), by shortest augmenting paths, in O(n**3).
Invariants: row price + column price >= gain for every cell, and equality for every
row and its column; so no other assignment can gain more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def best_assignment(gains: Sequence[Sequence[int]]) -> list[int]:
    """Return a column per row, all different, with the largest total gain."""
    search = _Search(gains)
    for row in range(len(gains)):
        search.seat(row)
    return search.column_of


class _Search:
    """The prices and the assignment of the rows that are seated so far."""

    __slots__ = ("_column_price", "_gains", "_row_of", "_row_price", "column_of")

    def __init__(self, gains: Sequence[Sequence[int]]) -> None:
        size = len(gains)
        self.column_of = [-1] * size
        self._gains = gains
        self._row_of = [-1] * size
        self._row_price = [max(row) for row in gains]
        self._column_price = [0] * size

    def seat(self, row: int) -> None:
        """Give a row a column, moving other rows along the cheapest path."""
        column, came_from = self._cheapest_path(row)
        while True:
            mover = came_from[column]
            self._row_of[column] = mover
            # The mover leaves its own column to the one before it on the path.
            self.column_of[mover], column = column, self.column_of[mover]
            if mover == row:
                return

    def _cheapest_path(self, start: int) -> tuple[int, list[int]]:
        """Return the free column where the path ends, and the row before each one."""
        came_from = [start] * len(self._gains)
        price, gains = self._row_price[start], self._gains[start]
        cost = [
            price + held - gain
            for held, gain in zip(self._column_price, gains, strict=True)
        ]
        unseen = list(range(len(gains)))
        seen: list[int] = []
        column = min(unseen, key=cost.__getitem__)
        while (row := self._row_of[column]) >= 0:
            seen.append(column)
            unseen.remove(column)
            base = cost[column] + self._row_price[row]
            gains = self._gains[row]
            for other in unseen:
                through = base + self._column_price[other] - gains[other]
                if through < cost[other]:
                    cost[other], came_from[other] = through, row
            column = min(unseen, key=cost.__getitem__)
        self._reprice(start, seen, cost, cost[column])
        return column, came_from

    def _reprice(
        self, start: int, seen: list[int], cost: list[int], total: int
    ) -> None:
        """Restore the invariants for the path that is about to be used."""
        self._row_price[start] -= total
        for column in seen:
            self._column_price[column] += total - cost[column]
            self._row_price[self._row_of[column]] -= total - cost[column]
