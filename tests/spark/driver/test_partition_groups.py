"""Small partitions share jobs, large ones don't, and each comes once, in its turn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from batchqueue_async.spark.arrow_batches import partition_groups

MIB = 2**20


@dataclass
class Jobs:
    """Partitions of these sizes, and what was asked of them."""

    sizes: Sequence[int]
    most: int = 2**60
    """Bytes that a job may bring."""
    groups: list[list[int]] = field(default_factory=list)

    def fetch(self, partitions: Sequence[int]) -> list[bytes]:
        self.groups.append([*partitions])
        if sum(self.sizes[n] for n in partitions) > self.most:
            msg = "Total size is bigger than spark.driver.maxResultSize (1024.0 MiB)"
            raise RuntimeError(msg)
        return [bytes(self.sizes[n]) for n in partitions]

    def run(self) -> list[int]:
        """Fetch all; return the sizes of what came."""
        groups = partition_groups(len(self.sizes), self.fetch)
        return [len(found) for group in groups for found in group]

    @property
    def lengths(self) -> list[int]:
        return [len(group) for group in self.groups]


def test_small_ones_come_by_twice_as_many_and_at_most_64() -> None:
    jobs = Jobs([1] * 200)

    assert len(jobs.run()) == 200

    assert jobs.lengths == [1, 2, 4, 8, 16, 32, 64, 64, 9]
    assert [n for group in jobs.groups for n in group] == [*range(200)]


def test_a_group_is_64_mib_of_the_largest_so_far() -> None:
    jobs = Jobs([1, 1, 20 * MIB, *[1] * 7])

    jobs.run()

    # 20 MiB among two partitions count as 10 for each.
    assert jobs.lengths == [1, 2, 4, 3]


def test_large_ones_come_one_by_one() -> None:
    jobs = Jobs([40 * MIB] * 4)
    assert jobs.run() == jobs.sizes
    assert jobs.lengths == [1, 1, 1, 1]


def test_empty_ones_and_no_partitions_are_fine() -> None:
    assert Jobs([]).run() == []
    assert Jobs([0] * 5).run() == [0] * 5


def test_what_is_more_than_the_driver_takes_comes_again_one_by_one() -> None:
    jobs = Jobs([*[1] * 7, *[10] * 6], most=25)

    assert jobs.run() == jobs.sizes

    assert jobs.lengths == [1, 2, 4, 6, 1, 1, 1, 1, 1, 1]


def test_one_that_is_too_large_for_the_driver_is_told() -> None:
    with pytest.raises(RuntimeError, match="maxResultSize"):
        Jobs([1, 30], most=25).run()


def test_other_failures_are_told_at_once() -> None:
    asked: list[Sequence[int]] = []

    def fails(partitions: Sequence[int]) -> list[bytes]:
        asked.append(partitions)
        if len(asked) > 1:
            msg = "gone"
            raise OSError(msg)
        return [b""]

    with pytest.raises(OSError, match="gone"):
        list(partition_groups(9, fails))
    assert len(asked) == 2
