"""Dates and times before the year 1, which Arrow's CSV spells in a way of its own."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

_DAY = 24 * 3600 * 1_000_000
# Days since 1970 of the first day of year 1, and of 400 years, which are all alike.
_FIRST = (date(1, 1, 1) - date(1970, 1, 1)).days
_CYCLE = 146_097


def spelled(column: pa.Array) -> pa.Array:
    """Return a column as PostgreSQL reads it: texts, if there are such values in it."""
    kind = column.type
    if pa.types.is_date(kind):
        return _spelled(column, column.cast(pa.date32()).cast(pa.int32()), 1)
    if pa.types.is_timestamp(kind):
        whole = column.cast(pa.timestamp("us", kind.tz), safe=False)
        return _spelled(column, whole.cast(pa.int64()), _DAY)
    return column


def _spelled(column: pa.Array, values: pa.Array, day: int) -> pa.Array:
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
