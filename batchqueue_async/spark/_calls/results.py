"""What a call returns becomes columns of the declared types, or one clear sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from batchqueue_async._wording import kind_of, reason
from batchqueue_async.sinks.exact_casts import exact_cast
from batchqueue_async.sinks.exact_values import Exact, exact_for


class Results(NamedTuple):
    """What came of some of a call's items, in their order.

    `counts` are how many rows each item has; None if each has one.
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
        if not isinstance(items[0], pa.RecordBatch):
            lengths = None if each is None else [*map(len, each)]
            return Results(positions, self._columns.of_rows(rows), lengths)
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

    def failed(
        self, positions: Sequence[int], items: Sequence[Any], error: str
    ) -> Results:
        """Return rows of nulls: one for an item, or as many as a record batch has."""
        counts = [rows_of([each]) for each in items]
        return Results(positions, self._columns.nulls(sum(counts)), counts, error)

    @staticmethod
    def _in_lists(returned: Sequence[Any]) -> list[list[Any]]:
        for at, each in enumerate(returned):
            if not isinstance(each, list):
                msg = f"with flat=True result {at} must be a list, got {kind_of(each)}"
                raise TypeError(msg)
        return [*returned]


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


class Column(NamedTuple):
    """One column of the results; `declared` is its type as Spark spells it."""

    name: str
    type: pa.DataType
    declared: str
    is_nullable: bool


class RowColumns:
    """Makes record batches of rows: dicts, tuples, Rows; or fits record batches."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._names = [each.name for each in columns]
        self._exact = [exact_for(each.type) for each in columns]
        # All nullable: Spark goes by its own schema, and `_refuse_null` checks nulls.
        self.schema = pa.schema([(each.name, each.type) for each in columns])

    def of_rows(self, rows: Sequence[Any]) -> pa.RecordBatch:
        if not rows:
            return self.nulls(0)
        kinds = {*map(type, rows)}
        values: Sequence[Sequence[Any]]
        if kinds == {dict}:
            values = [self._values_of(rows, name) for name in self._names]
        else:
            if kinds != {tuple} or {*map(len, rows)} != {len(self._names)}:
                rows = [self._plain(row, at) for at, row in enumerate(rows)]
            values = [*zip(*rows, strict=True)]
        arrays = map(_array, self._columns, self._exact, values)
        return pa.RecordBatch.from_arrays([*arrays], schema=self.schema)

    def of_batch(self, batch: object) -> pa.RecordBatch:
        if not isinstance(batch, pa.RecordBatch):
            msg = f"the result for a record batch must be one, got {kind_of(batch)}"
            raise TypeError(msg)
        arrays = []
        for column in self._columns:
            if batch.schema.get_field_index(column.name) < 0:
                self._refuse_missing("a record batch", column.name)
            arrays.append(_cast(column, batch.column(column.name)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def nulls(self, count: int) -> pa.RecordBatch:
        arrays = [pa.nulls(count, each.type) for each in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values_of(self, rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
        try:
            return [row[name] for row in rows]
        except KeyError:
            at = next(at for at, row in enumerate(rows) if name not in row)
            self._refuse_missing(f"result {at}", name)

    def _plain(self, row: object, at: int) -> tuple[Any, ...]:
        if isinstance(row, dict):
            return tuple(self._values_of([row], name)[0] for name in self._names)
        if not isinstance(row, tuple):
            msg = f"result {at} must be a dict, a tuple or a Row, got {kind_of(row)}"
            raise TypeError(msg)
        # Of a Row or a NamedTuple values are taken by name, not by position.
        names = getattr(row, "__fields__", None) or getattr(row, "_fields", None)
        if names is not None:
            for name in self._names:
                if name not in names:
                    self._refuse_missing(f"result {at}", name)
            return tuple(row[names.index(name)] for name in self._names)
        if len(row) != len(self._names):
            msg = f"result {at} must have {len(self._names)} values, got {len(row)}"
            raise ValueError(msg)
        return row

    def _refuse_missing(self, where: str, name: str) -> NoReturn:
        msg = f"{where} has no {name!r}; the schema is {', '.join(self._names)}"
        raise ValueError(msg)


def _array(column: Column, exact: Exact | None, values: Sequence[Any]) -> pa.Array:
    made = _made(column, exact, values)
    if made is None:
        # Arrow's own message shows the value, which is data.
        fits = [_made(column, exact, [value]) is not None for value in values]
        at = fits.index(False)
        msg = (
            f"column {column.name!r} takes {column.declared}, and {kind_of(values[at])}"
            f" in result {at} doesn't fit"
        )
        raise TypeError(msg)
    _refuse_null(column, made)
    return made


def _made(
    column: Column, exact: Exact | None, values: Sequence[Any]
) -> pa.Array | None:
    """Return the values as an array; None if they don't fit."""
    found = values if exact is None else exact(values)
    if found is None:
        return None
    try:
        return pa.array(found, column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _cast(column: Column, array: pa.Array) -> pa.Array:
    if array.type != column.type:
        try:
            array = exact_cast(array, column.type)
        except pa.ArrowException as error:
            msg = (
                f"column {column.name!r} takes {column.declared}, got {array.type}:"
                f" {reason(error)}"
            )
            raise TypeError(msg) from None
    _refuse_null(column, array)
    return array


def _refuse_null(column: Column, array: pa.Array) -> None:
    if array.null_count and not column.is_nullable:
        at = array.is_null().index(True).as_py()
        msg = f"column {column.name!r} must not be null, got None in result {at}"
        raise ValueError(msg)
