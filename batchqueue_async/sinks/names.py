"""How tables and columns are spelled by who names them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from batchqueue_async._wording import shown

from .checks import listed

_PART = r'("(?:[^"]|"")+"|[^".]+)'
_SPELLED = re.compile(rf"(?:{_PART}\.)?{_PART}")


def as_sql_reads(table: str) -> tuple[str | None, str] | None:
    """Return the schema, if any, and the name of a table that is spelled as in SQL.

    `s.t`, `"s"."t"` and `"t"`, a quote inside of quotes doubled. Letters keep their
    case, with quotes or without. None if SQL would not read it as a table's name.
    """
    found = _SPELLED.fullmatch(table)
    if found is None:
        return None
    schema, name = (
        part[1:-1].replace('""', '"') if part and part[0] == '"' else part
        for part in found.groups()
    )
    return schema, name


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def matched(
    names: Iterable[str], known: Collection[str], table: str, *, exact: bool = False
) -> list[str]:
    """Return the table's columns that the names stand for, in the names' order.

    If the case of letters need not be `exact`, a name that is the only one in another
    will do, as it does for Spark. A ValueError says that the table has no such column,
    or several; or that two names mean one.
    """
    found: dict[str, str] = {}
    for name in names:
        column = _column(name, known, table, exact=exact)
        if column in found:
            msg = (
                f"columns must be of different names in {table}, got {shown(name)}"
                f" and {shown(found[column])}, which are one"
            )
            raise ValueError(msg)
        found[column] = name
    return [*found]


def _column(name: str, known: Collection[str], table: str, *, exact: bool) -> str:
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    if len(alike) == 1 and not exact:
        return alike[0]
    told = listed([shown(column) for column in known])
    msg = f"column {shown(name)} must be one of {table}: {told}"
    if alike:
        why = "spark.sql.caseSensitive is set" if exact else "several are alike"
        msg += f" (names in another case of letters don't count: {why})"
    raise ValueError(msg)
