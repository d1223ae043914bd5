"""A figure with a limit, and the table that says which ones were reached."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.table import Column, Table

Tables = Mapping[str, Table]


@dataclass(frozen=True)
class Goal:
    """A figure and its limit."""

    what: str
    limit: float
    format: str
    measured: Callable[[Tables], float]
    is_at_most: bool = False
    also: Callable[[Tables], str] = lambda _: ""


def goals_table(goals: Sequence[Goal], tables: Tables) -> Table:
    """Compare; what was not measured says so."""
    found = Table(
        "goals",
        "Goals (ratios from this run; CPython 3.11 on asyncio's loop is what counts)",
        [
            Column("what"),
            Column("goal"),
            Column("measured"),
            Column("reached"),
            Column("besides"),
        ],
    )
    for goal in goals:
        written = Column("", goal.format).write
        limit = f"{'<=' if goal.is_at_most else '>='} {written(goal.limit)}"
        try:
            value, also = goal.measured(tables), goal.also(tables)
        except LookupError:
            found.add(goal.what, limit, "", "not measured", "")
            continue
        is_reached = value <= goal.limit if goal.is_at_most else value >= goal.limit
        found.add(goal.what, limit, written(value), "yes" if is_reached else "NO", also)
    return found
