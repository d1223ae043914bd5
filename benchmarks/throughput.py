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
    Column("items per batch", "count"),
    Column("spread", "percent"),
    Column("dropped", "percent"),
]

NEAR = ("ours", "floor")

Rate = Callable[[Contender], float]


def compare(
    table: Table,
    contenders: Sequence[Contender],
    rate: Rate,
    turns: Turns,
    rounds: int | None = None,
) -> Table:
    """Fill the table with all who are installed, in turns; ratios are of a group.

    The library and its floor are close to each other; they, and contenders that are in
    the goals, may take more turns.
    """
    there = [
        each
        for each in contenders
        if is_installed(each.needs) and not (each.is_slow and turns.is_quick)
    ]
    # A quick run takes the same few turns with all contenders.
    near = [each for each in there if each.role in NEAR or each.is_in_goals]
    if turns.is_quick:
        near = []
    far = [each for each in there if each not in near or each is _ours(there, each)]
    if len(near) == len(there):
        far = []
    beside = _taken(far, rate, turns)
    samples = _taken(near, rate, turns, rounds) or beside
    for each in there:
        ours, floor = _ours(there, each).name, _floor(there, each).name
        own = samples if each in near else beside
        table.samples[each.name] = own[each.name].values
        mine, we_are = own[each.name], own[ours].beside(own[each.name])
        # A contender with fewer turns is compared with the floor through the library.
        of_floor = (
            mine.beside(samples[floor])
            if own is samples
            else samples[ours].beside(samples[floor]) / we_are
        )
        table.add(
            each.name,
            each.group,
            of_floor,
            we_are,
            mine.median,
            statistics.median(each.batches) if each.batches else None,
            mine.spread,
            statistics.median(each.dropped) if each.dropped else None,
        )
    absent = [each for each in contenders if each not in there]
    if absent:
        reasons = "not installed, or slow in a quick run, so not here: "
        table.notes.append(reasons + ", ".join(each.name for each in absent))
    return table


def _taken(
    contenders: Sequence[Contender], rate: Rate, turns: Turns, rounds: int | None = None
) -> dict[str, Samples]:
    # Contenders of one group, whose ratios are shown, come right after each other.
    groups = list(dict.fromkeys(each.group for each in contenders))
    order = sorted(
        contenders, key=lambda each: (groups.index(each.group), each.role != "floor")
    )
    return turns.take({each.name: partial(rate, each) for each in order}, rounds=rounds)


def _ours(contenders: Sequence[Contender], of: Contender) -> Contender:
    return _first(contenders, of.group, "ours")


def _floor(contenders: Sequence[Contender], of: Contender) -> Contender:
    return _first(contenders, of.group, "floor")


def _first(contenders: Sequence[Contender], group: str, role: str) -> Contender:
    return next(
        each for each in contenders if each.group == group and each.role == role
    )
