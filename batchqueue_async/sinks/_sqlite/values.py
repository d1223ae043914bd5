"""From values of rows to what SQLite keeps as it is, or a refusal."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from operator import call
from typing import TypeAlias, cast

from batchqueue_async._wording import kind_of

from ..rows import Row
from .affinity import affinity_of, becomes_another, takes_texts_for_numbers

_Make: TypeAlias = Callable[[object], object]


class SqliteValues:
    """Makes numbers, texts and bytes; texts of what SQLite has no type for.

    Args:
        columns: The names of a row's values.
        types: The types that the table's columns are declared with, by name.
        nan_as_null: Let SQLite make NULL of a NaN.
    """

    def __init__(
        self, columns: Sequence[str], types: Mapping[str, str], *, nan_as_null: bool
    ) -> None:
        self._columns = columns
        plain = _plain_or_null if nan_as_null else _plain
        declared = {name.lower(): it for name, it in types.items()}
        self._makers = [
            _maker_for(declared.get(name.lower(), ""), plain) for name in columns
        ]

    def plain(self, number: int, rows: Iterable[Row]) -> list[Row]:
        """Return the rows, `number` as the first value of each."""
        makers, row = self._makers, cast("Row", ())
        made: list[Row] = []
        try:
            for row in rows:
                made.append((number, *map(call, makers, row)))
        except _Refused as refused:
            error, told = refused.args
            raise error(told % self._refused_column(row)) from None
        return made

    def refused(self, rows: Iterable[Row]) -> ValueError:
        """Return what to raise for the first value that the file has no form for."""
        for _, *row in rows:
            for column, value in zip(self._columns, row, strict=True):
                if _is_broken(value):
                    msg = f"column {column} must be text in UTF-8, got half a surrogate"
                    return ValueError(msg)
                if isinstance(value, int) and not -_MOST <= value < _MOST:
                    msg = f"column {column} must be an int of 64 bits, got a larger one"
                    return ValueError(msg)
        return ValueError("an item must be of text in UTF-8 and ints of 64 bits")

    def _refused_column(self, row: Row) -> str:
        for column, make, value in zip(self._columns, self._makers, row, strict=True):
            try:
                make(value)
            except _Refused:
                return column
        raise AssertionError


class _Refused(Exception):
    """A value of no kind that SQLite has: with what is raised, and `%s` its column."""


def _maker_for(declared: str, plain: _Make) -> _Make:
    """Return what makes values for a column that is declared with a type."""

    def text(value: object) -> object:
        made = plain(value)
        # Of 17 digits SQLite would keep 15.
        return repr(made) if type(made) is float else made

    def kept(value: object) -> object:
        made = plain(value)
        if isinstance(value, str) and becomes_another(value):
            of_type = declared.replace("%", "%%")
            msg = (
                "column %s must be no text that looks like a number, got one, of which"
                f" SQLite makes another in a column of type {of_type}: declare it TEXT"
            )
            raise _Refused(ValueError, msg)
        return made

    if affinity_of(declared) == "TEXT":
        return text
    return kept if takes_texts_for_numbers(declared) else plain


def _plain(value: object) -> object:
    if type(value) in _KEPT:
        return value
    value = _of_numpy(value)
    if _is_nan(value):
        msg = (
            "column %s must be a number or None, got a NaN, of which SQLite makes NULL"
            " (nan_as_null=True lets it)"
        )
        raise _Refused(ValueError, msg)
    if isinstance(value, date | time):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    # What Arrow makes of structs, lists, maps and durations; users may adapt them.
    if not (isinstance(value, _TAKEN) or _is_adapted(value)):
        msg = (
            f"column %s must be a number, a text or bytes, got {kind_of(value)}, of"
            " which SQLite has none (to_json, or a cast, makes a text of it)"
        )
        # What SQLite itself would raise, without the column.
        raise _Refused(sqlite3.ProgrammingError, msg)
    return value


def _plain_or_null(value: object) -> object:
    if type(value) in _KEPT:
        return value
    value = _of_numpy(value)
    return None if _is_nan(value) else _plain(value)


def _is_nan(value: object) -> bool:
    """Whether it is a NaN, or the NaT that pandas has in its place among dates."""
    may_be = isinstance(value, float | date)
    return may_be and value != value  # noqa: PLR0124 - a NaN differs


def _is_adapted(value: object) -> bool:
    is_known = (type(value), sqlite3.PrepareProtocol) in sqlite3.adapters
    return is_known or hasattr(value, "__conform__")


def _is_broken(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value)


def _of_numpy(value: object) -> object:
    # SQLite takes numpy's numbers for bytes. Who has none needs no numpy.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    made: object = value.item()
    # Of a datetime64 in nanoseconds it is their number, which stands for another time.
    is_time = isinstance(value, numpy.datetime64 | numpy.timedelta64)
    return value if is_time and isinstance(made, int) else made


_MOST = 2**63
_KEPT = frozenset((int, str, bytes, bool, type(None)))
# Not all that has a buffer, such as an array of numpy's, is meant as its bytes.
_TAKEN = (int, float, str, bytes, bytearray, memoryview, type(None))
