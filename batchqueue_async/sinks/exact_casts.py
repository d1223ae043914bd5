"""Casts of whole columns that keep their values: Arrow's own lose some in silence.

Of a timestamp it makes the day, of a number other than 0 true, of a float the nearest
decimal, of a large one an infinite one of 32 bits, and of a struct the fields that the
other has.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa


def exact_cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the column in another type.

    Raises:
        pyarrow.ArrowException: A value is none of that type, or would lose something.
    """
    made = column.cast(kind)
    if not _is_kept(column, made):
        msg = f"Casting from {column.type} to {kind} would lose data"
        raise pa.ArrowInvalid(msg)
    return made


def _is_kept(column: pa.Array, made: pa.Array) -> bool:
    given, kind = column.type, made.type
    if given == kind:
        return True
    # Takes half as long as the whole package, and all of Spark's processes import this.
    import pyarrow.compute as pc  # noqa: PLC0415

    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return {field.name for field in given} <= {*names} and all(
            _is_kept(pc.struct_field(column, name), pc.struct_field(made, name))
            for name in names
            if given.get_field_index(name) >= 0
        )
    if pa.types.is_map(kind):
        pairs = zip(_keys_and_items(column), _keys_and_items(made), strict=True)
        return all(_is_kept(*pair) for pair in pairs)
    if pa.types.is_nested(kind):
        return _is_kept(column.flatten(), made.flatten())
    is_float = pa.types.is_floating(given)
    if pa.types.is_floating(kind):
        return not is_float or cast("bool", pc.is_inf(made).equals(pc.is_inf(column)))
    is_number = is_float or pa.types.is_integer(given)
    may_lose = (
        pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or (pa.types.is_boolean(kind) and is_number)
        or (pa.types.is_decimal(kind) and is_float)
    )
    return not may_lose or cast("bool", made.cast(given).equals(column))


def _keys_and_items(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    # Of a slice of a column Arrow returns the keys and items of the whole column.
    part = slice(column.offsets[0].as_py(), column.offsets[-1].as_py())
    return column.keys[part], column.items[part]
