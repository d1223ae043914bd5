"""One call: its items, cut out of rows that wait, and its rows, until they leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from math import ceil
from typing import Any, TypeAlias

import pyarrow as pa

from batchqueue_async._wording import kind_of

from .declared import OutputColumn, beside_input
from .options import CallOptions
from .results import Results, joined, rows_of

_Place: TypeAlias = tuple[int, int, str | None]
"""The rows of one item: the first, the one after the last, and the error."""


class Call:
    """Items for which attempts are made, for all or for some, until each is settled.

    `given` are the input rows that the items were made of, if the output needs them:
    one row for each item, or all rows of an item that is a record batch.
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
        # Whether an attempt has failed, so that failed items get another one.
        self.is_tried_again = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_settled(self) -> bool:
        return not self._unsettled

    def items_at(self, positions: Sequence[int]) -> list[Any]:
        if len(positions) == len(self._items):
            return self._items.copy()
        return [self._items[position] for position in positions]

    def settle(self, results: Results) -> None:
        self._results.append(results)
        self._unsettled -= len(results.positions)

    def rows(self) -> pa.RecordBatch:
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
        """Return where each item's rows are in the joined rows of all results."""
        places: list[_Place] = [(0, 0, None)] * len(self)
        start = 0
        for each in self._results:
            counts = each.counts or [1] * len(each.positions)
            for position, count in zip(each.positions, counts, strict=True):
                places[position] = (start, start + count, each.error)
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
        at = 0
        for item, (start, end, _) in zip(self._items, places, strict=True):
            if isinstance(item, pa.RecordBatch):
                # A record batch has kept its rows, so each has its own input row.
                yield from range(at, at + end - start)
            else:
                yield from repeat(at, end - start)
            at += rows_of([item])


class CallLine:
    """Says whose rows leave next, and whether there is a place for one more call.

    Where the order is kept, a settled call waits in the line for those before it. It
    counts as in flight meanwhile, unless there is room for it in the reorder buffer.

    The buffer has room for `reorder_buffer` calls. None: for as many as one of Spark's
    record batches makes while the first call in the line, which the others wait for, is
    tried again; otherwise for none.
    """

    def __init__(self, options: CallOptions) -> None:
        self._options = options
        # The calls in their order; empty where the order isn't kept.
        self._ordered: deque[Call] = deque()
        self._calls = 0

    def __len__(self) -> int:
        return self._calls

    @property
    def is_buffering(self) -> bool:
        """Whether settled calls wait beside those in flight."""
        return self._calls > self._options.in_flight

    def has_place(self, calls_of_a_batch: int) -> bool:
        if self._calls < self._options.in_flight:
            return True
        beside = self._options.reorder_buffer
        if beside is None:
            first = self._ordered[0] if self._ordered else None
            is_retried = first is not None and first.is_tried_again
            beside = calls_of_a_batch if is_retried else 0
        return self._calls < self._options.in_flight + beside

    def join(self, call: Call) -> None:
        self._calls += 1
        if self._options.ordered:
            self._ordered.append(call)

    def leave(self, settled: Call) -> Iterator[Call]:
        """A call is settled: take out those whose rows may leave now."""
        if not self._options.ordered:
            self._calls -= 1
            yield settled
            return
        while self._ordered and self._ordered[0].is_settled:
            self._calls -= 1
            yield self._ordered.popleft()


class WaitingRows:
    """Holds record batches as Spark delivers them, until calls take items made of them.

    Rows are made into items only when a call takes them, so what waits stays columns.
    An item that is a record batch counts as many of a call's items as it has rows.
    """

    def __init__(self, options: CallOptions, *, keeps_input: bool) -> None:
        self._to_items = options.to_items
        self._max_batch = options.max_batch
        self._keeps_input = keeps_input
        # Each with the time of its arrival.
        self._batches: deque[tuple[pa.RecordBatch, float]] = deque()
        # How many rows of the first one are gone.
        self._used = 0
        # Items that were too many for a call, where a row becomes several items.
        self._made: deque[Any] = deque()
        self.rows = 0
        # How many calls the largest record batch up to now makes.
        self.calls_of_a_batch = 0

    def __bool__(self) -> bool:
        return bool(self.rows or self._made)

    def add(self, batch: pa.RecordBatch, now: float) -> None:
        if batch.num_rows:
            self._batches.append((batch, now))
            self.rows += batch.num_rows
            calls = ceil(batch.num_rows / self._max_batch)
            self.calls_of_a_batch = max(self.calls_of_a_batch, calls)

    @property
    def wants_more(self) -> bool:
        """Whether another record batch should be read: two are enough, if not tiny."""
        return len(self._batches) <= 1 or self.rows < self._max_batch

    @property
    def is_enough(self) -> bool:
        return self.rows + len(self._made) >= self._max_batch

    @property
    def oldest(self) -> float:
        """When the first waiting record batch arrived; 0, long ago, if none waits."""
        return self._batches[0][1] if self._batches else 0.0

    def cut(self) -> tuple[list[Any], pa.RecordBatch | None]:
        """Take a call's items out, and their rows if they are kept.

        There are no items if none of the waiting rows makes any.
        """
        most = min(self._max_batch, len(self._made))
        items = [self._made.popleft() for _ in range(most)]
        parts: list[pa.RecordBatch] = []
        size = rows_of(items)
        while size < self._max_batch and self.rows:
            part = self._take(self._max_batch - size)
            made = [*self._to_items(part)]
            size += rows_of(made)
            if self._keeps_input:
                self._require_all_rows(part, made)
                parts.append(part)
            items.extend(made)
        self._made.extend(items[self._max_batch :])
        del items[self._max_batch :]
        return items, joined(parts, parts[0].schema) if parts else None

    def _take(self, most: int) -> pa.RecordBatch:
        batch, _ = self._batches[0]
        part = batch.slice(self._used, most)
        self._used += part.num_rows
        self.rows -= part.num_rows
        if self._used == batch.num_rows:
            self._batches.popleft()
            self._used = 0
        return part

    @staticmethod
    def _require_all_rows(part: pa.RecordBatch, made: list[Any]) -> None:
        found = rows_of(made)
        if found != part.num_rows:
            first = kind_of(made[0]) if made else "none"
            msg = (
                'with on_error="column" to_items must make one item per row, got'
                f" {found} ({first}) for {part.num_rows}"
            )
            raise ValueError(msg)
