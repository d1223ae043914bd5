"""The results of one attempt, checked against the items that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from batchqueue_async._wording import kind_of

from .row_columns import RowColumns


class Results(NamedTuple):
    """What came of some of a call's items, in their order.

    `counts` are how many rows each has; None for one each.
    """

    positions: Sequence[int]
    rows: pa.RecordBatch
    counts: Sequence[int] | None = None
    error: str | None = None


class ResultMaker:
    """Makes `Results` of what a call returned.

    Where the input's columns stand beside a result's (`keeps_input`), a record batch
    has to keep its number of rows.
    """

    def __init__(self, columns: RowColumns, *, flat: bool, keeps_input: bool) -> None:
        self._columns = columns
        self._flat = flat
        self._keeps_input = keeps_input

    def made(
        self, positions: Sequence[int], items: Sequence[Any], returned: object
    ) -> Results:
        """Return the results of these items."""
        if not isinstance(returned, list | tuple) or hasattr(returned, "_fields"):
            what = kind_of(returned)
            msg = f"call must return a list with one result per item, got {what}"
            raise TypeError(msg)
        if len(returned) != len(items):
            msg = (
                f"call must return one result per item, got {len(returned)} for"
                f" {len(items)} items"
            )
            raise ValueError(msg)
        each = self._in_lists(returned) if self._flat else None
        rows = returned if each is None else [*chain.from_iterable(each)]
        if isinstance(items[0], pa.RecordBatch):
            return self._of_batches(positions, items, rows, each)
        counts = None if each is None else [*map(len, each)]
        return Results(positions, self._columns.of_rows(rows), counts)

    def failed(
        self, positions: Sequence[int], items: Sequence[Any], error: str
    ) -> Results:
        """Return nulls in their place: a row for an item, all of a record batch's."""
        counts = [
            each.num_rows if isinstance(each, pa.RecordBatch) else 1 for each in items
        ]
        return Results(positions, self._columns.nulls(sum(counts)), counts, error)

    @staticmethod
    def _in_lists(returned: Sequence[Any]) -> list[list[Any]]:
        for at, each in enumerate(returned):
            if not isinstance(each, list):
                msg = f"with flat=True result {at} must be a list, got {kind_of(each)}"
                raise TypeError(msg)
        return [*returned]

    def _of_batches(
        self,
        positions: Sequence[int],
        items: Sequence[pa.RecordBatch],
        rows: Sequence[Any],
        each: Sequence[Sequence[Any]] | None,
    ) -> Results:
        made = [self._columns.of_batch(batch) for batch in rows]
        if each is None:
            counts = [batch.num_rows for batch in made]
        else:
            counts = [sum(batch.num_rows for batch in batches) for batches in each]
        if self._keeps_input and counts != [item.num_rows for item in items]:
            msg = (
                'with on_error="column" a record batch must keep its number of rows,'
                f" got {sum(counts)} for {sum(item.num_rows for item in items)}"
            )
            raise ValueError(msg)
        return Results(positions, joined(made, self._columns.schema), counts)


def rows_of(items: Sequence[Any]) -> int:
    """Return how many rows items stand for: 1 each, or those of record batches."""
    if items and isinstance(items[0], pa.RecordBatch):
        return sum(item.num_rows for item in items)
    return len(items)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema)
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
