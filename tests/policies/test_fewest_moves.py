"""Labels beyond the exact size."""

from __future__ import annotations

import random

from batchqueue_async._policies.lpt import Run, relabel


def rotated(drain_tasks: int) -> tuple[list[Run], list[int]]:
    """Return three partitions per owner, in groups whose labels are off by one."""
    owners = [index // 3 for index in range(3 * drain_tasks)]
    runs = [
        ([index], [(owner + 1) % drain_tasks]) for index, owner in enumerate(owners)
    ]
    random.Random(0).shuffle(runs)
    return runs, owners


def test_rotated_labels_move_nothing() -> None:
    """Exact up to 64 drain tasks; beyond, clear cases are still found."""
    for drain_tasks in (2, 64, 65, 100):
        runs, owners = rotated(drain_tasks)
        assert relabel(runs, owners, drain_tasks) == owners


def test_many_drain_tasks_get_one_label_each() -> None:
    """The greedy labels are a permutation, however the groups overlap."""
    seeded = random.Random(7)
    owners = [seeded.randrange(80) for _ in range(400)]
    groups = [seeded.randrange(80) for _ in range(400)]
    runs: list[Run] = [([index], [group]) for index, group in enumerate(groups)]
    plan = relabel(runs, owners, 80)
    labels = set(zip(groups, plan, strict=True))
    assert len(labels) == len({group for group, _ in labels})
    assert len(labels) == len({label for _, label in labels})
