"""Which drain task takes which group, so that the fewest partitions change owner."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, TypeAlias

from .hungarian import best_assignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Run: TypeAlias = tuple[list[int], list[int]]
"""Partitions of equal load, and the groups that they were packed into."""

# The exact assignment takes O(T**3); beyond this many it would hold up the loop.
_EXACT_UP_TO = 64


def relabel(runs: Iterable[Run], owners: Sequence[int], drain_tasks: int) -> list[int]:
    """Return an owner per partition; those in no run keep theirs.

    Groups keep their loads: only their labels change, and partitions of one run
    change places. Exact up to 64 drain tasks, greedy beyond.
    """
    runs = list(runs)
    stays = _possible_stays(runs, owners, drain_tasks)
    assign = best_assignment if drain_tasks <= _EXACT_UP_TO else _greedy_assignment
    labels = assign(stays)
    plan = list(owners)
    for partitions, groups in runs:
        _place(partitions, [labels[group] for group in groups], plan)
    return plan


def _possible_stays(
    runs: Iterable[Run], owners: Sequence[int], drain_tasks: int
) -> list[list[int]]:
    """Count, by group and label, the partitions that would stay where they are."""
    stays = [[0] * drain_tasks for _ in range(drain_tasks)]
    for partitions, groups in runs:
        if len(partitions) == 1:
            stays[groups[0]][owners[partitions[0]]] += 1
            continue
        here = _counts([owners[partition] for partition in partitions]).items()
        for group, wanted in _counts(groups).items():
            row = stays[group]
            for owner, present in here:
                row[owner] += min(wanted, present)
    return stays


def _counts(values: list[int]) -> dict[int, int]:
    # By hand: most runs are short, and setting up a Counter costs more than counting.
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def _place(partitions: list[int], labels: list[int], plan: list[int]) -> None:
    """Give the labels to partitions of equal load, first to those that stay."""
    if len(partitions) == 1:
        plan[partitions[0]] = labels[0]
        return
    room = _counts(labels)
    moving: list[int] = []
    for partition in partitions:
        if room.get(plan[partition], 0):
            room[plan[partition]] -= 1
        else:
            moving.append(partition)
    left = chain.from_iterable(repeat(*label) for label in room.items())
    for partition, label in zip(moving, left, strict=True):
        plan[partition] = label


def _greedy_assignment(gains: Sequence[Sequence[int]]) -> list[int]:
    """Return a column per row, all different, taking the largest gains first."""
    size = len(gains)
    cells = [
        (-gains[row][column], row, column)
        for row in range(size)
        for column in range(size)
    ]
    columns: dict[int, int] = {}
    taken: set[int] = set()
    for _, row, column in sorted(cells):
        if row not in columns and column not in taken:
            columns[row] = column
            taken.add(column)
    return [columns[row] for row in range(size)]
