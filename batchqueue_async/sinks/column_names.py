"""Which columns of a table the names of a frame's columns mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from batchqueue_async._wording import shown

_MOST_TOLD = 20


def matched(
    names: Iterable[str], known: Collection[str], table: str, *, exact: bool = False
) -> list[str]:
    """Return the table's columns that the names stand for, in the names' order.

    Args:
        names: The frame's columns.
        known: The table's.
        table: How the table is called, for messages.
        exact: Take a name in that case of letters only; else one that is the only one
            in another case will do, as it does for Spark.

    Raises:
        ValueError: The table has no such column, or several; or two names mean one.
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
    told = ", ".join(map(shown, [*known][:_MOST_TOLD]))
    more = f" and {len(known) - _MOST_TOLD} more" if len(known) > _MOST_TOLD else ""
    msg = f"column {shown(name)} must be one of {table}: {told}{more}"
    if alike:
        why = "spark.sql.caseSensitive is set" if exact else "several are alike"
        msg += f" (names in another case of letters don't count: {why})"
    raise ValueError(msg)
