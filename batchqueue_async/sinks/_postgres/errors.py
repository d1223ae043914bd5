"""What a PostgreSQL server says, without the values of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import asyncpg

from batchqueue_async._wording import kind_of

from ..rows import Row

# SQLSTATE classes: data exceptions, broken constraints and check options, and what a
# trigger raises. Their details are rows.
_OF_ROWS = ("22", "23", "44", "P0")
_DATA = "22"
_ENCODING = "22021"
_MOST_TOLD = 20


@contextmanager
def without_values() -> Iterator[None]:
    """Take values of rows out of a server's error, and leave it what else it is."""
    try:
        yield
    except asyncpg.PostgresError as error:
        _redact(error)
        raise


def refuse_row(
    columns: Sequence[str], row: Row, error: type[BaseException]
) -> NoReturn:
    """Raise a TypeError or ValueError for a row that can't be encoded, by its types."""
    told = [f"{c}: {kind_of(v)}" for c, v in zip(columns, row, strict=False)]
    more = f" and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    msg = (
        f"an item must be of what the table's columns take ({error.__name__}), got"
        f" {', '.join(told[:_MOST_TOLD])}{more}"
    )
    raise TypeError(msg) if issubclass(error, TypeError) else ValueError(msg)


def _redact(error: Any) -> None:  # noqa: ANN401 - its fields come with the server's answer
    state = error.sqlstate or ""
    context, error.context = error.context, None
    if not state.startswith(_OF_ROWS):
        return
    error.detail = None
    message = str(error.args[0]) if error.args else ""
    is_text = state == _ENCODING
    # With a quotation mark or a colon comes a value, in whatever language.
    if is_text or (state.startswith(_DATA) and re.search(r"[^\w\s(),.-]", message)):
        found = re.search(r", column ([^:]+)(?:: |$)", context or "")
        of_column = f" of column {found[1]}" if found else ""
        refused = "a text with a NUL, or not in UTF-8," if is_text else "a value"
        message = f"the server refuses {refused}{of_column}: SQLSTATE {state}"
        error.args = (message,)
        error.message = message
