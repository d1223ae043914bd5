"""Columns of record batches in the form of Arrow's that is the plainest.

A dictionary, a view and bytes of one length hold the same values in another way, of
which neither Arrow's CSV nor the copy in binary form knows. Databases keep moments in
microseconds.
"""

from __future__ import annotations

import pyarrow as pa


def plain_column(column: pa.Array, name: str) -> pa.Array:
    """Return the column's values as they are, of a type that isn't about their form.

    Raises:
        ValueError: It has a time that isn't one in whole microseconds.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    wanted = _plain(column.type)
    if wanted == column.type:
        return column
    if pa.types.is_temporal(wanted):
        # Arrow's own error quotes the value, and has no name.
        made = column.cast(wanted, safe=False)
        if made.cast(column.type, safe=False) != column:
            msg = f"column {name} must be of {_told(column.type)}"
            raise ValueError(msg)
        return made
    return column.cast(wanted)


def _told(kind: pa.DataType) -> str:
    if pa.types.is_date(kind):
        return f"whole days, got other times of type {kind}"
    if kind.unit == "ns":
        return f"times in whole microseconds, got nanoseconds of type {kind}"
    return f"times that 64 bits of microseconds have, got others of type {kind}"


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_date64(kind):
        return pa.date32()
    return kind
