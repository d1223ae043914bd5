"""Record batches whose values mean the same by each way into the table's columns.

A moment without a zone is one of UTC, as in rows of whole microseconds. Left to itself
the server takes it for one of its session's zone, and asyncpg for one of this
machine's; and of a moment both make the day that a DATE has.

A FLOAT has 24 binary digits. What a DOUBLE has instead are the same ones, not those of
the shortest text that stands for the FLOAT.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ..exact_casts import exact_cast
from ..plain_columns import plain_column

# The numbers of the types on every server.
_FLOAT8, _NUMERIC = 701, 1700
_DATE, _TIMESTAMP, _TIMESTAMPTZ = 1082, 1114, 1184
_TIMES = frozenset((1083, 1266))


def fitted(batch: pa.RecordBatch, types: Mapping[str, int]) -> pa.RecordBatch:
    """Return a record batch whose columns are of the types of the table's.

    Of days, moments and floats alone; others are of a plain type of their own.

    Args:
        batch: Of columns that the table has.
        types: The numbers of the types of the table's columns, by name.

    Raises:
        ValueError: A value would lose its time of the day, its day or its nanoseconds.
    """
    names = batch.schema.names
    columns = [
        _fitted(name, column, types.get(name, 0))
        for name, column in zip(names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names)


def _fitted(name: str, column: pa.Array, number: int) -> pa.Array:
    column = plain_column(column, name)
    wanted = _wanted(column.type, number)
    if pa.types.is_timestamp(column.type) and number in _TIMES:
        msg = f"column {name} must be of times without a day, got {column.type}"
        raise ValueError(msg)
    if wanted == column.type:
        return column
    try:
        return exact_cast(column, wanted)
    except pa.ArrowInvalid:
        if number != _DATE:
            return column  # it is beyond the calendar: the server will refuse it
    msg = f"column {name} must be of days without a time, got {column.type} with some"
    raise ValueError(msg)


def _wanted(kind: pa.DataType, number: int) -> pa.DataType:
    if pa.types.is_float32(kind) and number in {_FLOAT8, _NUMERIC}:
        return pa.float64()
    is_moment = pa.types.is_timestamp(kind)
    if not (is_moment or pa.types.is_date(kind)):
        return kind
    unit = kind.unit if is_moment else "us"
    found = {_TIMESTAMP: pa.timestamp(unit), _TIMESTAMPTZ: pa.timestamp(unit, "UTC")}
    if is_moment:
        found[_DATE] = pa.date32()
    return found.get(number, kind)
