"""From record batches to the CSV that PostgreSQL's COPY reads, at column speed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from batchqueue_async._validation import refuse

_OPTIONS = pyarrow.csv.WriteOptions(include_header=False)
_NESTED: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_nested,
    pa.types.is_interval,
    pa.types.is_duration,
)

_DAY = 24 * 3600 * 1_000_000
# Days since 1970 of the first day of year 1, and of 400 years, which are all alike.
_FIRST = (date(1, 1, 1) - date(1970, 1, 1)).days
_CYCLE = 146_097


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
    return _spelled(column)


def _spelled(column: pa.Array) -> pa.Array:
    """Return a column as PostgreSQL reads it: texts, if years before 1 are in it.

    Arrow's CSV spells these in a way of its own.
    """
    kind = column.type
    if pa.types.is_date(kind):
        return _dates_spelled(column, column.cast(pa.date32()).cast(pa.int32()), 1)
    if pa.types.is_timestamp(kind):
        whole = column.cast(pa.timestamp("us", kind.tz), safe=False)
        return _dates_spelled(column, whole.cast(pa.int64()), _DAY)
    return column


def _dates_spelled(column: pa.Array, values: pa.Array, day: int) -> pa.Array:
    first = pc.min(values).as_py()
    if first is None or first >= _FIRST * day:
        return column
    zone = "+00" if day == _DAY and column.type.tz is not None else ""
    texts = [v if v is None else _text(v, day, zone) for v in values.to_pylist()]
    return pa.array(texts, pa.string())


def _text(value: int, day: int, zone: str) -> str:
    days, rest = divmod(value, day)
    cycles = max(0, -((days - _FIRST) // _CYCLE))
    alike = date(1970, 1, 1) + timedelta(days + cycles * _CYCLE)
    year = alike.year - 400 * cycles
    era = "" if year > 0 else " BC"
    text = f"{year if year > 0 else 1 - year:04d}-{alike:%m-%d}"
    if day == _DAY:
        seconds, micros = divmod(rest, 1_000_000)
        hours, seconds = divmod(seconds, 3600)
        text += f" {hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}.{micros:06d}"
    return f"{text}{zone}{era}"
