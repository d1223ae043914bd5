"""How a table is spelled by who names it, and what is said of fences."""

from __future__ import annotations

import logging
import re

from .epochs import Epoch

logger: logging.Logger = logging.getLogger("batchqueue_async")

# In fences of the old layout, which don't know their table: they count for all.
ANY_TABLE = ""

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
    schema, name = (part and _unquoted(part) for part in found.groups())
    return schema, name


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def warn_of_old_fence(epoch: Epoch, table: str) -> None:
    """Log that a fence counts for a table although it may be another one's."""
    logger.warning(
        "%s counts as committed into %s: its fence was written by an earlier version, "
        "which didn't note the table, and so counts for all that share the fences. Give"
        " a table that is new fences of its own",
        epoch,
        table,
        extra=_fields(epoch, table),
    )


def warn_of_new_table(epoch: Epoch, table: str) -> None:
    """Log that an epoch is committed once more: its table was made anew."""
    logger.warning(
        "%s was committed into a table %s that was dropped since: it is committed into"
        " the new one of that name, too",
        epoch,
        table,
        extra=_fields(epoch, table),
    )


def _fields(epoch: Epoch, table: str) -> dict[str, str | int]:
    return {"query": epoch.query, "batch": epoch.batch, "table": table}


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
