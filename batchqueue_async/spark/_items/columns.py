"""The values of a column of Spark's, as Python has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]
"""Makes a value of another one that isn't None."""


def values_of(field: pa.Field, column: pa.Array) -> list[Any]:
    """Return the values: timestamps as whole microseconds since 1970, maps as dicts."""
    if pa.types.is_timestamp(column.type):
        microseconds = pa.timestamp("us", column.type.tz)
        column = column.cast(microseconds).cast(pa.int64())
    return converted(_python_values(field, column), with_dicts(column.type))


def datetimes_of(field: pa.Field, column: pa.Array) -> list[Any]:
    """Return timestamps as datetimes, in UTC if they have a time zone."""
    zone = None if field.type.tz is None else "UTC"
    return _python_values(field, column.cast(pa.timestamp("us", zone)))


def _python_values(field: pa.Field, column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        msg = (
            f"column {field.name!r} has a value of type {field.type} that Python"
            f" doesn't have ({error}): cast it in Spark, or use to_batches"
        )
        raise ValueError(msg) from None
    return values


def converted(values: list[Any], convert: Convert | None) -> list[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


def with_dicts(kind: pa.DataType) -> Convert | None:
    """Return what makes dicts of maps, which pyarrow gives as lists of pairs.

    None if there are no maps in values of this type, however deep.
    """
    if not kind.num_fields:
        return None
    if pa.types.is_map(kind):
        inner = with_dicts(kind.item_type)
        return dict if inner is None else _map_of(inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = with_dicts(kind.value_type)
        return None if inner is None else _list_of(inner)
    if pa.types.is_struct(kind):
        inners = {each.name: with_dicts(each.type) for each in kind}
        known = {name: inner for name, inner in inners.items() if inner is not None}
        return _struct_of(known) if known else None
    return None


def _map_of(inner: Convert) -> Convert:
    def convert(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return {key: None if it is None else inner(it) for key, it in pairs}

    return convert


def _list_of(inner: Convert) -> Convert:
    return lambda values: converted(values, inner)


def _struct_of(inners: dict[str, Convert]) -> Convert:
    def convert(struct: dict[str, Any]) -> dict[str, Any]:
        for name, inner in inners.items():
            if struct[name] is not None:
                struct[name] = inner(struct[name])
        return struct

    return convert
