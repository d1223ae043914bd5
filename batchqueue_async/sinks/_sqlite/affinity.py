"""What SQLite makes of values by the type that a column is declared with.

https://sqlite.org/datatype3.html#determination_of_column_affinity
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Final

# A type that means one thing in a STRICT table, and another elsewhere.
ANY: Final = "ANY"
# In this order.
_AFFINITIES = (
    ("INTEGER", ("INT",)),
    ("TEXT", ("CHAR", "CLOB", "TEXT")),
    ("BLOB", ("BLOB",)),
    ("REAL", ("REAL", "FLOA", "DOUB")),
)
# Who declares one of these wants numbers. Of others, such as STRING, UUID or JSON,
# SQLite doesn't know what they mean, and makes numbers of texts all the same.
_OF_NUMBERS = ("NUM", "DEC", "BOOL", "MONEY", "CURRENCY")
# Nothing is given back (`++`, `*+`): else 16,000 digits and a letter took 8 s.
_NUMBER = re.compile(r"\s*+[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d++)?\s*+", re.ASCII)
# Beyond it a whole number is a float.
_MOST = 2**63


def declared_types(database: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the types that a table's columns are declared with, by their names."""
    query = "SELECT name, upper(type) FROM pragma_table_info(?, 'main')"
    with closing(database.execute(query, (table,))) as found:
        return {str(name): str(declared) for name, declared in found}


def affinity_of(declared: str) -> str:
    """Return a column's affinity, the same for a copy by `CREATE TABLE AS`, or ANY."""
    if declared == ANY:
        return ANY
    for name, parts in _AFFINITIES:
        if any(part in declared for part in parts):
            return name
    return "NUMERIC" if declared else "BLOB"


def takes_texts_for_numbers(declared: str) -> bool:
    """Whether texts become numbers although nobody has asked for numbers."""
    is_asked_for = any(part in declared for part in _OF_NUMBERS)
    return affinity_of(declared) == "NUMERIC" and not is_asked_for


def becomes_another(text: str) -> bool:
    """Whether a text differs from what a number is read as that is made of it."""
    if _NUMBER.fullmatch(text) is None:
        return False
    try:
        whole = int(text)
    except ValueError:
        number = float(text)
        return number.is_integer() or repr(number) != text
    return str(whole) != text or not -_MOST <= whole < _MOST
