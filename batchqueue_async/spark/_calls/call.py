"""One call's items, and what came of each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from .kept_input import OutputColumn, beside_input
from .results import Results, joined, rows_of


class Cut(NamedTuple):
    """The items of one call.

    Attributes:
        items: In their order.
        given: The rows that they were made of, where those are needed at the end: one
            for each item, and all of a record batch's.
    """

    items: list[Any]
    given: pa.RecordBatch | None


class Call:
    """Attempts are made for some of the items, or all, until each one is settled."""

    __slots__ = ("_cut", "_output", "_results", "_unsettled", "is_tried_again")

    def __init__(self, cut: Cut, output: Sequence[OutputColumn] | None) -> None:
        self._cut = cut
        self._output = output
        self._unsettled = len(cut.items)
        self._results: list[Results] = []
        # Until it is settled: an attempt has failed, and what failed gets another one.
        self.is_tried_again = False

    def __len__(self) -> int:
        return len(self._cut.items)

    @property
    def is_settled(self) -> bool:
        return not self._unsettled

    def items_at(self, positions: Sequence[int]) -> list[Any]:
        """Return items for an attempt, in a list of their own."""
        items = self._cut.items
        if len(positions) == len(items):
            return items.copy()
        return [items[position] for position in positions]

    def settle(self, results: Results) -> None:
        self._results.append(results)
        self._unsettled -= len(results.positions)

    def rows(self) -> pa.RecordBatch:
        """Return the rows of all items, in the order of the items."""
        results = self._results
        if len(results) == 1 and results[0].counts is None:
            # A row for each item, and in their order already.
            return self._with_input(results[0].rows, [None] * len(self), None)
        places = self._places()
        rows = joined([each.rows for each in results], results[0].rows.schema)
        order = chain.from_iterable(range(start, end) for start, end, _ in places)
        errors = [error for start, end, error in places for _ in range(start, end)]
        return self._with_input(rows.take(pa.array(order, pa.int64())), errors, places)

    def _places(self) -> list[_Place]:
        """Return where each item's rows are, if all results' follow one another."""
        places: list[_Place] = [_Place(0, 0, None)] * len(self)
        start = 0
        for each in self._results:
            counts = each.counts or [1] * len(each.positions)
            for position, count in zip(each.positions, counts, strict=True):
                places[position] = _Place(start, start + count, each.error)
                start += count
        return places

    def _with_input(
        self,
        rows: pa.RecordBatch,
        errors: Sequence[str | None],
        places: Sequence[_Place] | None,
    ) -> pa.RecordBatch:
        given = self._cut.given
        if self._output is None or given is None:
            return rows
        if places is not None:
            given = given.take(pa.array(self._given_for(places), pa.int64()))
        return beside_input(self._output, given, rows, errors)

    def _given_for(self, places: Sequence[_Place]) -> Iterator[int]:
        """Return for each row out the row in that it belongs to."""
        at = 0
        for item, (start, end, _) in zip(self._cut.items, places, strict=True):
            if isinstance(item, pa.RecordBatch):
                # It has kept its rows.
                yield from range(at, at + end - start)
            else:
                yield from repeat(at, end - start)
            at += rows_of([item])


class _Place(NamedTuple):
    """The rows of one item: the first, the one after the last, and the error."""

    start: int
    end: int
    error: str | None
