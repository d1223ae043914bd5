"""One call's items, what came of each of them, and when its rows leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from .declared import OutputColumn, beside_input
from .results import Results, joined, rows_of


class Call:
    """Attempts are made for some of the items, or all, until each one is settled.

    `given` are the rows that they were made of, where those are needed at the end: one
    for each item, and all of a record batch's.
    """

    __slots__ = (
        "_given",
        "_items",
        "_output",
        "_results",
        "_unsettled",
        "is_tried_again",
    )

    def __init__(
        self,
        items: list[Any],
        given: pa.RecordBatch | None,
        output: Sequence[OutputColumn] | None,
    ) -> None:
        self._items = items
        self._given = given
        self._output = output
        self._unsettled = len(items)
        self._results: list[Results] = []
        # Until it is settled: an attempt has failed, and what failed gets another one.
        self.is_tried_again = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_settled(self) -> bool:
        return not self._unsettled

    def items_at(self, positions: Sequence[int]) -> list[Any]:
        """Return items for an attempt, in a list of their own."""
        if len(positions) == len(self._items):
            return self._items.copy()
        return [self._items[position] for position in positions]

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
        given = self._given
        if self._output is None or given is None:
            return rows
        if places is not None:
            given = given.take(pa.array(self._given_for(places), pa.int64()))
        return beside_input(self._output, given, rows, errors)

    def _given_for(self, places: Sequence[_Place]) -> Iterator[int]:
        """Return for each row out the row in that it belongs to."""
        at = 0
        for item, (start, end, _) in zip(self._items, places, strict=True):
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


class CallLine:
    """Says whose rows leave next, and whether there is a place for one more call.

    Where the order is kept a settled call waits in the line for those before it. It
    keeps its place among those in flight, unless the reorder buffer takes it.

    `reorder_buffer` settled calls have a place beside those in flight. None: as many as
    one of Spark's record batches makes while the first in the line, which the others
    wait for, is tried again; otherwise none.
    """

    def __init__(
        self, in_flight: int, *, is_ordered: bool, reorder_buffer: int | None
    ) -> None:
        self._in_flight = in_flight
        self._is_ordered = is_ordered
        self._reorder_buffer = reorder_buffer
        # In their order; empty where that isn't kept.
        self._ordered: deque[Call] = deque()
        self._calls = 0

    def __len__(self) -> int:
        return self._calls

    @property
    def is_buffering(self) -> bool:
        """Whether settled calls wait beside those in flight."""
        return self._calls > self._in_flight

    def has_place(self, calls_of_a_batch: int) -> bool:
        """Whether another call may join."""
        if self._calls < self._in_flight:
            return True
        beside = self._reorder_buffer
        if beside is None:
            first = self._ordered[0] if self._ordered else None
            is_retried = first is not None and first.is_tried_again
            beside = calls_of_a_batch if is_retried else 0
        return self._calls < self._in_flight + beside

    def join(self, call: Call) -> None:
        """A call begins."""
        self._calls += 1
        if self._is_ordered:
            self._ordered.append(call)

    def leave(self, settled: Call) -> Iterator[Call]:
        """A call is settled: take out those whose rows may leave now."""
        if not self._is_ordered:
            self._calls -= 1
            yield settled
            return
        while self._ordered and self._ordered[0].is_settled:
            self._calls -= 1
            yield self._ordered.popleft()
