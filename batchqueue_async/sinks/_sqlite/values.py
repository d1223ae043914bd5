"""From values of rows to what SQLite keeps as it is, or a refusal."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from operator import call
from typing import TypeAlias

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
        declared = {name.lower(): it for name, it in types.items()}
        self._makers = [
            _maker_for(name, declared.get(name.lower(), ""), nan_as_null=nan_as_null)
            for name in columns
        ]

    def plain(self, rows: Iterable[Row]) -> list[Row]:
        makers = self._makers
        return [(*map(call, makers, row),) for row in rows]

    def refused(self, rows: Iterable[Row]) -> ValueError:
        """Return what to raise for the first value that the file has no form for."""
        for row in rows:
            for column, value in zip(self._columns, row, strict=True):
                if _is_broken(value):
                    msg = f"column {column} must be text in UTF-8, got half a surrogate"
                    return ValueError(msg)
                if isinstance(value, int) and not -_MOST <= value < _MOST:
                    msg = f"column {column} must be an int of 64 bits, got a larger one"
                    return ValueError(msg)
        return ValueError("an item must be of text in UTF-8 and ints of 64 bits")


def _maker_for(column: str, declared: str, *, nan_as_null: bool) -> _Make:
    """Return what makes values for a column that is declared with a type."""
    plain = _plain_for(column, nan_as_null=nan_as_null)

    def text(value: object) -> object:
        made = plain(value)
        # SQLite itself would keep 15 of its 17 digits.
        return repr(made) if type(made) is float else made

    def kept(value: object) -> object:
        made = plain(value)
        if isinstance(value, str) and becomes_another(value):
            msg = (
                f"column {column} must be no text that looks like a number, got one, of"
                f" which SQLite makes another in a column of type {declared}: declare"
                " it TEXT"
            )
            raise ValueError(msg)
        return made

    if affinity_of(declared) == "TEXT":
        return text
    return kept if takes_texts_for_numbers(declared) else plain


def _plain_for(column: str, *, nan_as_null: bool) -> _Make:
    """Return what makes numbers, texts and bytes, or refuses a value by its column."""

    def plain(value: object) -> object:
        if type(value) in _KEPT:
            return value
        value = _of_numpy(value)
        # A NaN, or the NaT that pandas has in its place among dates.
        if isinstance(value, float | date) and value != value:  # noqa: PLR0124
            if nan_as_null:
                return None
            msg = (
                f"column {column} must be a number or None, got a NaN, of which SQLite"
                " makes NULL (nan_as_null=True lets it)"
            )
            raise ValueError(msg)
        if isinstance(value, date | time):
            return str(value)
        if isinstance(value, Decimal):
            return format(value, "f")
        # Arrow's structs, lists, maps and durations are refused, unless the user has
        # registered an adapter for them.
        if not (isinstance(value, _TAKEN) or _is_adapted(value)):
            msg = (
                f"column {column} must be a number, a text or bytes, got"
                f" {kind_of(value)}, of which SQLite has none (to_json, or a cast,"
                " makes a text of it)"
            )
            # SQLite itself would raise the same error, without the column's name.
            raise sqlite3.ProgrammingError(msg)
        return value

    return plain


def _is_adapted(value: object) -> bool:
    is_known = (type(value), sqlite3.PrepareProtocol) in sqlite3.adapters
    return is_known or hasattr(value, "__conform__")


def _is_broken(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value)


def _of_numpy(value: object) -> object:
    # SQLite takes numpy's numbers for bytes. Where numpy isn't loaded there are none.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    made: object = value.item()
    # A datetime64 in nanoseconds would become their number. Taken for microseconds that
    # is another time, so the value stays as it is, and is refused.
    is_time = isinstance(value, numpy.datetime64 | numpy.timedelta64)
    return value if is_time and isinstance(made, int) else made


_MOST = 2**63
_KEPT = frozenset((int, str, bytes, bool, type(None)))
# Not all that has a buffer, such as an array of numpy's, is meant as its bytes.
_TAKEN = (int, float, str, bytes, bytearray, memoryview, type(None))
