"""Whole microseconds since 1970, where a column of timestamps wants a `datetime`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ..rows import Row

_NAIVE = datetime(1970, 1, 1)
# The numbers of the types on every server, and what their values count from.
_SINCE = {1114: _NAIVE, 1184: _NAIVE.replace(tzinfo=UTC)}


def with_datetimes(
    rows: list[Row], columns: Sequence[str], types: dict[str, int]
) -> list[Row]:
    """Return the rows with a `datetime` for each int in a column of timestamps.

    Ints are how `to_tuples` and its like make rows of Spark's, and what SQLite keeps.

    Args:
        rows: The same are returned if there is nothing to make.
        columns: The columns of a row, in its order.
        types: The numbers of the types of the table's columns, by name.

    Raises:
        ValueError: A number is of no year from 1 to 9999.
    """
    for place, column in enumerate(columns):
        since = _SINCE.get(types.get(column, 0))
        if since is not None:
            rows = [
                row
                if type(row[place]) is not int
                else [
                    *row[:place],
                    _made(column, since, row[place]),
                    *row[place + 1 :],
                ]
                for row in rows
            ]
    return rows


def _made(column: str, since: datetime, microseconds: int) -> datetime:
    try:
        return since + timedelta(microseconds=microseconds)
    except OverflowError:
        pass
    # Not in the `except`: what Python says would quote the value.
    msg = (
        f"column {column} must be a timestamp of the years 1 to 9999, in whole"
        " microseconds since 1970, got another number"
    )
    raise ValueError(msg)
