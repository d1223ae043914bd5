"""Rows of which asyncpg would lose something: what is nearly of a column's type.

It cuts fractions off for whole numbers, and of a datetime the time of the day for a
DATE, the date and the zone for a TIME, and nanoseconds of pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple

import asyncpg

from batchqueue_async._wording import kind_of

from ..checks import has_fraction, has_time
from ..rows import Row


def _has_date(value: object) -> bool:
    return isinstance(value, date)


def _has_date_or_zone(value: object) -> bool:
    return _has_date(value) or getattr(value, "tzinfo", None) is not None


def _has_nanoseconds(value: object) -> bool:
    return bool(getattr(value, "nanosecond", 0))  # of pandas


# NUMERIC, its arrays, NUMRANGE and NUMMULTIRANGE.
_NUMERICS = frozenset((1700, 1231, 3906, 4532))
_WITHOUT_FLOATS = frozenset((Decimal, int, str, type(None)))


class _Rule(NamedTuple):
    """What a value must be; those of the plain types need no look."""

    plain: frozenset[type]
    is_lost: Callable[[object], bool]
    told: str


_NONE = type(None)
_WHOLE = _Rule(frozenset((int, _NONE)), has_fraction, "a whole number")
_DAY = _Rule(frozenset((date, _NONE)), has_time, "a day without a time")
_TIME = _Rule(frozenset((_NONE,)), _has_date_or_zone, "a time without a day or a zone")
_TIME_IN_ZONE = _Rule(frozenset((time, _NONE)), _has_date, "a time without a day")
_MOMENT = _Rule(
    frozenset((datetime, int, _NONE)), _has_nanoseconds, "a moment in microseconds"
)
# By the numbers of the types on every server, and by those of their arrays and ranges.
_RULES: Final[Mapping[int, _Rule]] = {
    # BIGINT, SMALLINT and INTEGER; OID, XID, CID and XID8.
    **dict.fromkeys((20, 21, 23, 26, 28, 29, 5069), _WHOLE),
    1082: _DAY,
    1083: _TIME,
    1266: _TIME_IN_ZONE,
    **dict.fromkeys((1114, 1184), _MOMENT),
}
_OF_ARRAYS: Final[Mapping[int, _Rule]] = {
    **dict.fromkeys((1016, 1005, 1007, 3904, 3926, 4451, 4536), _WHOLE),
    **dict.fromkeys((1182, 3912, 4535), _DAY),
    1183: _TIME,
    1270: _TIME_IN_ZONE,
    **dict.fromkeys((1115, 1185, 3908, 3910, 4533, 4534), _MOMENT),
}


def require_exact(
    rows: Sequence[Row], columns: Sequence[str], types: dict[str, int]
) -> None:
    """Refuse what a column would lose something of.

    Args:
        rows: Of values for the columns, in their order.
        columns: Their names.
        types: The numbers of the types of the table's columns, by name.

    Raises:
        ValueError: There is such a value; the message has the column's name.
    """
    for place, column in enumerate(columns):
        number, values = types.get(column, 0), (row[place] for row in rows)
        if number in _RULES:
            _require(_RULES[number], f"column {column}", [*values])
        elif number in _OF_ARRAYS:
            whose = f"an element of column {column}"
            _require(_OF_ARRAYS[number], whose, [*_elements(values)])


def with_decimals(
    rows: Sequence[Row], columns: Sequence[str], types: dict[str, int]
) -> Sequence[Row]:
    """Return rows with a decimal for each float that a NUMERIC takes.

    It has the digits of the float's text, as where the server reads that. asyncpg takes
    all those of its binary value, so that 2.675 would be rounded to 2.67.
    """
    places = [
        place
        for place, column in enumerate(columns)
        if types.get(column) in _NUMERICS
        and not {type(row[place]) for row in rows} <= _WITHOUT_FLOATS
    ]
    if not places:
        return rows
    made = [[*row] for row in rows]
    for row in made:
        for place in places:
            row[place] = _with_decimals(row[place])
    return made


def _has_parts(value: object) -> bool:
    is_container = isinstance(value, Iterable | asyncpg.Range)
    return is_container and not isinstance(value, str | bytes | Mapping)


def _with_decimals(value: Any) -> Any:  # noqa: ANN401 - of arrays and ranges, too
    if isinstance(value, float):
        return Decimal(repr(float(value)))
    if isinstance(value, asyncpg.Range):
        return asyncpg.Range(
            _with_decimals(value.lower),
            _with_decimals(value.upper),
            lower_inc=value.lower_inc,
            upper_inc=value.upper_inc,
            empty=value.isempty,
        )
    if not _has_parts(value):
        return value
    parts = map(_with_decimals, value)
    return tuple(parts) if isinstance(value, tuple) else [*parts]


def _elements(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, asyncpg.Range):
            yield from (value.lower, value.upper)
        elif _has_parts(value):
            yield from _elements(value)
        else:
            yield value


def _require(rule: _Rule, whose: str, values: Sequence[object]) -> None:
    # Nearly always all values are of a plain type, which this finds out quickly.
    if {*map(type, values)} <= rule.plain:
        return
    for value in values:
        if rule.is_lost(value):
            msg = f"{whose} must be {rule.told}, got {kind_of(value)}"
            raise ValueError(msg)
