"""Values that Arrow would take for a type's, and lose something of them.

It cuts fractions off, and times of a day, and zones of times, takes a text's letters
for an array's elements, and the fields of a Row inside of a column by their places, not
their names, and leaves out those that a struct hasn't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from functools import partial
from math import isfinite
from numbers import Integral, Number
from typing import Any, Final, TypeAlias

import pyarrow as pa

from .checks import has_fraction, has_time

Values: TypeAlias = Sequence[Any]
Exact: TypeAlias = Callable[[Values], "Values | None"]
"""Returns values for Arrow, of which it loses nothing; None if one doesn't fit."""

_TEXTS = (str, bytes, bytearray, memoryview)


def exact_for(kind: pa.DataType) -> Exact | None:
    """Return what looks at values of a column; None where Arrow itself is exact."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _arrays(exact_for(kind.value_type))
    if pa.types.is_map(kind):
        return _maps(exact_for(kind.key_type), exact_for(kind.item_type))
    if pa.types.is_struct(kind):
        return _structs([*kind])
    if (step := _STEPS.get(getattr(kind, "unit", ""))) is not None:
        return _each({int, _NONE}, partial(_is_between, step=step))
    found = (_each(plain, is_lost) for is_it, plain, is_lost in _RULES if is_it(kind))
    return next(found, None)


def _each(plain: set[type], is_lost: Callable[[Any], bool]) -> Exact:
    def exact(values: Values) -> Values | None:
        if {*map(type, values)} <= plain:
            return values
        return None if any(map(is_lost, values)) else values

    return exact


def _is_between_microseconds(value: object) -> bool:
    if isinstance(value, Number):
        # Whole numbers are microseconds; a float most likely stands for seconds.
        return not isinstance(value, Integral)
    return bool(getattr(value, "nanosecond", 0))  # of pandas


def _is_between(value: object, step: int) -> bool:
    """Whether it is between two steps of so many microseconds."""
    micros = getattr(value, "microsecond", 0)
    if isinstance(value, timedelta):
        micros = value.microseconds
    return micros % step != 0 or _is_between_microseconds(value) or _has_zone(value)


def _has_zone(value: object) -> bool:
    return isinstance(value, time) and value.tzinfo is not None


def _is_no_day(value: object) -> bool:
    """Whether it has a time, or is the NaT of pandas: to Arrow the first day of all."""
    is_nat = isinstance(value, datetime) and value != value  # noqa: PLR0124
    return is_nat or has_time(value)


def _is_too_large(value: object) -> bool:
    """Whether a number is infinite as a float of 32 bits, and isn't yet."""
    return isinstance(value, float) and isfinite(value) and abs(value) >= _TOO_LARGE


# Half a step beyond the largest float of 32 bits.
_TOO_LARGE: Final = 2.0**128 - 2.0**103
_NONE = type(None)
# Of the units that are longer, in microseconds.
_STEPS: Final = {"s": 1_000_000, "ms": 1_000}
# For the types of a kind: those of values that need no look, and what is looked for.
_RULES: Final[
    Sequence[tuple[Callable[[pa.DataType], bool], set[type], Callable[[Any], bool]]]
] = (
    (pa.types.is_integer, {int, _NONE}, has_fraction),
    (pa.types.is_float32, {int, _NONE}, _is_too_large),
    (pa.types.is_time, {int, _NONE}, _has_zone),
    (pa.types.is_date, {date, _NONE}, _is_no_day),
    (pa.types.is_timestamp, {datetime, int, _NONE}, _is_between_microseconds),
    (pa.types.is_duration, {timedelta, int, _NONE}, _is_between_microseconds),
)


def _arrays(inner: Exact | None) -> Exact:
    def exact(values: Values) -> Values | None:
        if any(isinstance(each, _TEXTS) for each in values):
            return None
        return values if inner is None else _all(values, of_one)

    def of_one(value: Any) -> Any:  # noqa: ANN401 - whatever was returned
        assert inner is not None
        parts = [*value]
        found = inner(parts)
        return value if found is parts else found

    return exact


def _maps(of_key: Exact | None, of_value: Exact | None) -> Exact | None:
    if of_key is None and of_value is None:
        return None

    def of_one(pairs: Any) -> Any:  # noqa: ANN401 - whatever was returned
        keys, values = [], []
        for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
            keys.append(key)
            values.append(value)
        exact_keys = keys if of_key is None else of_key(keys)
        exact_values = values if of_value is None else of_value(values)
        if exact_keys is None or exact_values is None:
            return None
        return [*zip(exact_keys, exact_values, strict=True)]

    return lambda values: _all(values, of_one)


def _structs(fields: Sequence[pa.Field]) -> Exact | None:
    names = [each.name for each in fields]
    if len({*names}) < len(names):
        return None  # a dict can't have two values of one name
    known = {*names}
    found = [(each.name, exact_for(each.type)) for each in fields]
    inners = [(name, inner) for name, inner in found if inner is not None]

    def of_one(value: Any) -> Any:  # noqa: ANN401 - whatever was returned
        if isinstance(value, tuple):
            value = _by_name(value, names)
        if not isinstance(value, dict):
            return value  # no struct: Arrow itself refuses it
        if not value.keys() <= known:
            return None  # Arrow would leave the others out
        changed = {}
        for name, inner in inners:
            before = [value.get(name)]
            after = inner(before)
            if after is None:
                return None
            if after is not before:
                changed[name] = after[0]
        return {**value, **changed} if changed else value

    return lambda values: _all(values, of_one)


def _by_name(value: tuple[Any, ...], names: Sequence[str]) -> object:
    # The names of a Row's fields, or of a NamedTuple's.
    own = getattr(value, "__fields__", None) or getattr(value, "_fields", None)
    if own is not None and {*names} <= {*own}:
        return dict(zip(own, value, strict=True))
    if len(value) == len(names):
        return dict(zip(names, value, strict=True))
    return value


def _all(values: Values, of_one: Callable[[Any], Any]) -> Values | None:
    """Return what is made of each that isn't None; None if one doesn't fit."""
    made = []
    for value in values:
        try:
            one = None if value is None else of_one(value)
        except (TypeError, ValueError):  # it can't be taken apart
            return None
        if one is None and value is not None:
            return None
        made.append(one)
    return made
