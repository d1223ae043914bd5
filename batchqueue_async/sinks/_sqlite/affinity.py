"""What SQLite makes of values by the type that a column was declared with."""

from __future__ import annotations

ANY = "ANY"
"""A type that means one thing in a STRICT table, and another elsewhere."""

# In this order: https://sqlite.org/datatype3.html#determination_of_column_affinity
_RULES = (
    ("INTEGER", ("INT",)),
    ("TEXT", ("CHAR", "CLOB", "TEXT")),
    ("BLOB", ("BLOB",)),
    ("REAL", ("REAL", "FLOA", "DOUB")),
)


def affinity(declared: str) -> str:
    """Return a column's affinity, the same for a copy by `CREATE TABLE AS`, or ANY."""
    kind = declared.upper()
    if kind == ANY:
        return ANY
    for name, parts in _RULES:
        if any(part in kind for part in parts):
            return name
    return "NUMERIC" if kind else "BLOB"
