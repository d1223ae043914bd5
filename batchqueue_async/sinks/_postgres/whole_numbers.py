"""Rows whose numbers are whole where a column's are: asyncpg cuts fractions off."""

from __future__ import annotations

from collections.abc import Sequence

from batchqueue_async._wording import kind_of

from ..checks import has_fraction
from ..rows import Row

# The numbers of the types on every server: BIGINT, SMALLINT and INTEGER.
_WHOLE = frozenset((20, 21, 23))
_NEED_NO_LOOK = frozenset((int, type(None)))


def require_whole(
    rows: Sequence[Row], columns: Sequence[str], types: dict[str, int]
) -> None:
    """Refuse a fraction for a column of whole numbers.

    Args:
        rows: Of values for the columns, in their order.
        columns: Their names.
        types: The numbers of the types of the table's columns, by name.

    Raises:
        ValueError: There is one; the message has the column's name.
    """
    for place, column in enumerate(columns):
        if types.get(column) not in _WHOLE:
            continue
        # Nearly always there is one kind of them.
        if {type(row[place]) for row in rows} <= _NEED_NO_LOOK:
            continue
        for row in rows:
            if has_fraction(value := row[place]):
                msg = f"column {column} must be a whole number, got {kind_of(value)}"
                raise ValueError(msg)
