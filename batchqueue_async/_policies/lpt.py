"""Longest processing time first: share out loads so that the largest sum is small.

R. L. Graham, "Bounds on Multiprocessing Timing Anomalies" (1969): the largest sum is
at most 4/3 - 1/(3m) of the best possible one for m drain tasks.

Which drain task takes which group, so that the fewest partitions change owner, is the
assignment problem: a column for each row, so that the total gain is largest. The
Hungarian method (H. W. Kuhn, 1955), by shortest augmenting paths, in O(n**3), keeps
row price + column price >= gain for every cell, and equality for every row and its
column; so no other assignment can gain more.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def lpt_plan(
    loads: Sequence[float], owners: Sequence[int], drain_tasks: int
) -> list[int]:
    """Return an LPT plan, the one with the fewest moves among those as good.

    As good are plans that differ only in which drain task takes which group of
    partitions, and in which of several equally loaded partitions are in which group.
    Partitions without load keep their owner. O(P log P + P log T), and up to O(T**3)
    for the choice of drain tasks.
    """
    loaded = [index for index, load in enumerate(loads) if load > 0]
    loaded.sort(key=loads.__getitem__, reverse=True)
    groups = _pack(loaded, loads, owners, drain_tasks)
    runs: list[Run] = []
    start = 0
    for _, equal in groupby(loaded, key=loads.__getitem__):
        run = list(equal)
        runs.append((run, groups[start : start + len(run)]))
        start += len(run)
    return relabel(runs, owners, drain_tasks)


def _pack(
    partitions: Sequence[int],
    loads: Sequence[float],
    owners: Sequence[int],
    drain_tasks: int,
) -> list[int]:
    """Give each partition to the least loaded group; the owner's wins a tie."""
    totals = [0.0] * drain_tasks
    heap = [(0.0, group) for group in range(drain_tasks)]
    groups: list[int] = []
    for partition in partitions:
        # Drop outdated entries: the group has grown since, and has a later entry.
        while heap[0][0] != totals[heap[0][1]]:
            heappop(heap)
        least, group = heap[0]
        owner = owners[partition]
        if totals[owner] == least:
            group = owner
        totals[group] = total = least + loads[partition]
        heappush(heap, (total, group))
        groups.append(group)
    return groups


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


def best_assignment(gains: Sequence[Sequence[int]]) -> list[int]:
    """Return a column per row, all different, with the largest total gain."""
    search = _Search(gains)
    for row in range(len(gains)):
        search.seat(row)
    return search.column_of


class _Search:
    """The prices and the assignment of the rows that are seated so far."""

    def __init__(self, gains: Sequence[Sequence[int]]) -> None:
        size = len(gains)
        self.column_of = [-1] * size
        self._gains = gains
        self._row_of = [-1] * size
        self._row_price = [max(row) for row in gains]
        self._column_price = [0] * size

    def seat(self, row: int) -> None:
        """Give a row a column, moving other rows along the cheapest path."""
        column, came_from = self._cheapest_path(row)
        while True:
            mover = came_from[column]
            self._row_of[column] = mover
            # The mover leaves its own column to the one before it on the path.
            self.column_of[mover], column = column, self.column_of[mover]
            if mover == row:
                return

    def _cheapest_path(self, start: int) -> tuple[int, list[int]]:
        """Return the free column where the path ends, and the row before each one."""
        came_from = [start] * len(self._gains)
        price, gains = self._row_price[start], self._gains[start]
        cost = [
            price + held - gain
            for held, gain in zip(self._column_price, gains, strict=True)
        ]
        unseen = list(range(len(gains)))
        seen: list[int] = []
        column = min(unseen, key=cost.__getitem__)
        while (row := self._row_of[column]) >= 0:
            seen.append(column)
            unseen.remove(column)
            base = cost[column] + self._row_price[row]
            gains = self._gains[row]
            for other in unseen:
                through = base + self._column_price[other] - gains[other]
                if through < cost[other]:
                    cost[other], came_from[other] = through, row
            column = min(unseen, key=cost.__getitem__)
        self._reprice(start, seen, cost, cost[column])
        return column, came_from

    def _reprice(
        self, start: int, seen: list[int], cost: list[int], total: int
    ) -> None:
        """Restore the invariants for the path that is about to be used."""
        self._row_price[start] -= total
        for column in seen:
            self._column_price[column] += total - cost[column]
            self._row_price[self._row_of[column]] -= total - cost[column]
