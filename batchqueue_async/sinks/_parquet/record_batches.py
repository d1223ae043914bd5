"""From a handler's items to record batches of pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from batchqueue_async._validation import refuse
from batchqueue_async._wording import kind_of

from ..exact_values import exact_for
from ..rows import Row, RowReader, python_rows, selected

T = TypeVar("T")


class RecordBatchReader(Generic[T]):
    """Makes record batches of items."""

    def __init__(
        self, schema: pa.Schema | None, to_row: Callable[[T], Row] | None
    ) -> None:
        if schema is not None and not isinstance(schema, pa.Schema):
            refuse("schema", "a pyarrow.Schema", schema, TypeError)
        if schema is None and to_row is not None:
            refuse("schema", "given together with to_row", schema)
        self._schema = schema
        self._to_row = to_row

    def batches(self, items: Iterable[T]) -> Iterator[pa.RecordBatch]:
        rows: list[Any] = []
        for item in items:
            if self._to_row is None and isinstance(item, pa.RecordBatch):
                yield from self._of_rows(rows)
                rows = []
                yield item if self._schema is None else _fitted(item, self._schema)
            else:
                rows.append(item)
        yield from self._of_rows(rows)

    def empty(self) -> list[pa.RecordBatch]:
        """Return one without rows, if its columns are known."""
        if self._schema is None:
            return []
        return [pa.RecordBatch.from_pylist([], schema=self._schema)]

    def _of_rows(self, items: list[Any]) -> Iterator[pa.RecordBatch]:
        if not items:
            return
        if self._schema is None:
            rule = "a record batch, for a sink without a schema"
            msg = f"an item must be {rule}, got {kind_of(items[0])}"
            raise TypeError(msg)
        reader = RowReader(self._schema.names, self._to_row, python_rows)
        columns = zip(*reader.rows(items), strict=True)
        arrays = [
            _made(field, partial(_exact_array, column, field.type))
            for column, field in zip(columns, self._schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _exact_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    exact = exact_for(kind)
    found = values if exact is None else exact(values)
    if found is None:
        raise ValueError
    return pa.array(found, kind)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = selected(batch, schema.names).columns
    for field, column in zip(schema, columns, strict=True):
        if column.null_count and not field.nullable:
            refuse(f"column {field.name}", "without nulls", "null")
    arrays = [
        _made(field, partial(column.cast, field.type))
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _made(field: pa.Field, make: Callable[[], pa.Array]) -> pa.Array:
    """Return the column; what pyarrow says of a bad value would quote it."""
    try:
        return make()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        refused = TypeError if isinstance(error, TypeError) else ValueError
        why = type(error).__name__
    # Not in the `except`, where the error would be this one's context.
    msg = f"column {field.name} must be of {field.type}, got a value that isn't ({why})"
    raise refused(msg)
