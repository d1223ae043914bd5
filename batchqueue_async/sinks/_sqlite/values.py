"""From values of rows to what SQLite keeps as it is, or a refusal."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import cast

from batchqueue_async._wording import kind_of

from ..rows import Row


class SqliteValues:
    """Makes numbers, texts and bytes; texts of what SQLite has no type for."""

    def __init__(self, columns: Sequence[str], *, nan_as_null: bool) -> None:
        self._columns = columns
        self._plain = _plain_or_null if nan_as_null else _plain

    def plain(self, number: int, rows: Iterable[Row]) -> list[Row]:
        """Return the rows, `number` as the first value of each."""
        plain, row = self._plain, cast("Row", ())
        made: list[Row] = []
        try:
            for row in rows:
                made.append((number, *map(plain, row)))
        except _Refused as refused:
            column = self._column_of(row, self._is_refused)
            error, told = refused.args
            raise error(told % column) from None
        return made

    def broken_text(self, rows: Iterable[Row]) -> ValueError:
        """Return what to raise for the first text that is none in UTF-8."""
        for _, *row in rows:
            if any(map(_is_broken, row)):
                column = self._column_of(row, _is_broken)
                msg = f"column {column} must be text in UTF-8, got half a surrogate"
                return ValueError(msg)
        return ValueError("an item must be of text in UTF-8, got half a surrogate")

    def _column_of(self, row: Row, is_it: Callable[[object], bool]) -> str:
        named = zip(self._columns, row, strict=True)
        return next(name for name, value in named if is_it(value))

    def _is_refused(self, value: object) -> bool:
        try:
            self._plain(value)
        except _Refused:
            return True
        return False


class _Refused(Exception):
    """A value of no kind that SQLite has: with what is raised, and `%s` its column."""


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
    has_parts = isinstance(value, dict | list | tuple | timedelta)
    if has_parts and (type(value), sqlite3.PrepareProtocol) not in sqlite3.adapters:
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
    return isinstance(value, float) and value != value  # noqa: PLR0124 - a NaN differs


def _is_broken(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value)


def _of_numpy(value: object) -> object:
    # SQLite takes numpy's numbers for bytes. Who has none needs no numpy.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    return value


_KEPT = frozenset((int, str, bytes, bool, type(None)))
