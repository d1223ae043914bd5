"""Longest processing time first: share out loads so that the largest sum is small.

R. L. Graham, "Bounds on Multiprocessing Timing Anomalies" (1969): the largest sum is
at most 4/3 - 1/(3m) of the best possible one for m drain tasks.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import groupby
from typing import TYPE_CHECKING

from .fewest_moves import Run, relabel

if TYPE_CHECKING:
    from collections.abc import Sequence


def lpt_plan(
    loads: Sequence[float], owners: Sequence[int], drain_tasks: int
) -> list[int]:
    """Return an LPT plan, the one with the fewest moves among those as good.

    As good are the plans that differ by which drain task takes which group of
    partitions, and by which of several equally loaded partitions is in which group.
    Partitions without load keep their owner. O(P log P + P log T), and the labels
    up to O(T**3).
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
        # A group grew since this entry was made: a later entry stands for it.
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
