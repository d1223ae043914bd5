"""Compares contenders group by group, and says how far ahead the library is."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.contender import Contender
from benchmarks.machine import is_installed
from benchmarks.table import Column, Table
from benchmarks.turns import Samples, Turns

COLUMNS = [
    Column("contender"),
    Column("producing"),
    Column("of floor", "percent"),
    Column("we are", "times"),
    Column("million/s", "millions"),
    Column("spread", "percent"),
    Column("dropped", "percent"),
]

Rate = Callable[[Contender], float]


def compare(
    table: Table,
    contenders: Sequence[Contender],
    rate: Rate,
    turns: Turns,
    rounds: int | None = None,
) -> Table:
    """Fill the table with all who are installed, in turns; ratios are of a group."""
    there = [
        each
        for each in contenders
        if is_installed(each.needs) and not (each.is_slow and turns.is_quick)
    ]
    samples = turns.take(
        {each.name: partial(rate, each) for each in there}, rounds=rounds
    )
    for each in there:
        mine = samples[each.name]
        floor = _median_of(there, samples, each.group, "floor")
        ours = _median_of(there, samples, each.group, "ours")
        table.add(
            each.name,
            each.group,
            mine.median / floor,
            ours / mine.median,
            mine.median,
            mine.spread,
            statistics.median(each.dropped) if each.dropped else None,
        )
    absent = [each for each in contenders if each not in there]
    if absent:
        reasons = "not installed, or slow in a quick run, so not here: "
        table.notes.append(reasons + ", ".join(each.name for each in absent))
    return table


def _median_of(
    contenders: Sequence[Contender],
    samples: dict[str, Samples],
    group: str,
    role: str,
) -> float:
    return next(
        samples[each.name].median
        for each in contenders
        if each.group == group and each.role == role
    )
