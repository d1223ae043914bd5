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
        ValueError: It has a time with nanoseconds.
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
            msg = (
                f"column {name} must be of times in whole microseconds, got nanoseconds"
                f" of type {column.type}"
            )
            raise ValueError(msg)
        return made
    return column.cast(wanted)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    return kind
