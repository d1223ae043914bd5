"""From record batches to the CSV that PostgreSQL's COPY reads, at column speed."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.csv

from batchqueue_async._validation import refuse

from .before_christ import spelled

_OPTIONS = pyarrow.csv.WriteOptions(include_header=False)
_NESTED: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_nested,
    pa.types.is_interval,
    pa.types.is_duration,
)


def csv_rows(batches: list[pa.RecordBatch], key: str) -> pa.Buffer:
    """Return the rows as CSV, `key` as the first value of each.

    A null is an empty value, an empty text is one in quotes, as COPY expects them.
    """
    output = pa.BufferOutputStream()
    for batch in batches:
        columns = [_plain(batch.schema.field(n), c) for n, c in enumerate(batch)]
        keys = pa.repeat(pa.scalar(key), batch.num_rows)
        names = [str(number) for number in range(len(columns) + 1)]
        table = pa.RecordBatch.from_arrays([keys, *columns], names=names)
        pyarrow.csv.write_csv(table, output, _OPTIONS)
    return output.getvalue()


def require_plain(schema: pa.Schema) -> None:
    """Refuse columns of types that are no value of PostgreSQL's."""
    for field in schema:
        if any(is_it(field.type) for is_it in _NESTED):
            rule = "of a type without parts (to_json makes texts of them)"
            refuse(f"column {field.name!r}", rule, str(field.type), TypeError)


def _plain(field: pa.Field, column: pa.Array) -> pa.Array:
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # In some zones' early years the texts would lack an offset's seconds.
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = (None if v is None else "\\x" + v.hex() for v in column.to_pylist())
        return pa.array(values, pa.string())
    return spelled(column)
