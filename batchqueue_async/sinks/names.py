"""How tables and columns are spelled by who names them, and what fences are told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from batchqueue_async import BatchQueueError
from batchqueue_async._log import logger
from batchqueue_async._wording import shown

from .checks import listed
from .epochs import Epoch, fields_of

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
    schema, name = (
        part[1:-1].replace('""', '"') if part and part[0] == '"' else part
        for part in found.groups()
    )
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
        table=table,
        **fields_of(epoch),
    )


def warn_of_new_table(epoch: Epoch, table: str) -> None:
    """Log that an epoch is committed once more: its table was made anew."""
    logger.warning(
        "%s was committed into a table %s that was dropped since: it is committed into"
        " the new one of that name, too",
        epoch,
        table,
        table=table,
        **fields_of(epoch),
    )


def require_own(epoch: Epoch, checkpoint: str | None) -> None:
    """Refuse an epoch that another stream has written: it is no repetition.

    Where one of the two is not known, as in fences of earlier versions, it counts.
    """
    if checkpoint is None or epoch.checkpoint in {None, checkpoint}:
        return
    msg = (
        f"query must be one stream's alone, got {shown(epoch.query)}: its batch"
        f" {epoch.batch} was written by the stream with checkpoint {checkpoint}, and"
        f" now comes from that with checkpoint {epoch.checkpoint}, whose rows are not"
        " written. A stream with another checkpoint, or with a new one, takes another"
        " `query`"
    )
    raise BatchQueueError(msg)


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
