"""What a server says of a row that it refuses, without the row."""

from __future__ import annotations

import re
from typing import Any

# SQLSTATE classes: data exceptions, broken constraints and check options, and what a
# trigger raises. Their details are rows.
_OF_ROWS = ("22", "23", "44", "P0")
_DATA = "22"
_ENCODING = "22021"
# "COPY t, line 1, column c: ...", in each language that the server speaks: all but
# Korean have these words in this order. Lines before it, and what comes after the
# column, are values.
_COPIED = re.compile(
    r"^[^:\n]*?"
    r"(?:COPY[^:\n]*?[,、] ?\S+ \d+[,、] ?\S+ |복사, \d+[^\s:]+ [^\s:]+ )"
    r"([^:\n]+?)\s*(?::|$)",
    re.MULTILINE,
)


def take_values_out(error: Any) -> None:  # noqa: ANN401 - its fields come with the server's answer
    """Have a PostgresError tell what it is about, and no values of rows."""
    state = error.sqlstate or ""
    context, error.context = error.context, None
    # What a COPY says of a value; for a tsvector it is a syntax error, in this class.
    found = _COPIED.search(context or "")
    if not state.startswith(_OF_ROWS) and found is None:
        return
    error.detail = None
    message = str(error.args[0]) if error.args else ""
    is_text = state == _ENCODING
    is_data = state.startswith(_DATA) or not state.startswith(_OF_ROWS)
    # In every language a value comes after a colon or in quotation marks.
    if is_text or (is_data and re.search(r"[^\w\s(),.-]", message)):
        of_column = f" of column {found[1]}" if found else ""
        refused = "a text with a NUL, or not in UTF-8," if is_text else "a value"
        message = f"the server refuses {refused}{of_column}: SQLSTATE {state}"
    elif found:
        message += f", in column {found[1]}"
    error.args = (message,)
    error.message = message
