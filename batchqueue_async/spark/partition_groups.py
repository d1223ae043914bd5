"""Partitions are fetched several at a time, as many as should fit into some memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

Fetch: TypeAlias = Callable[[Sequence[int]], list[bytes]]
"""What runs a job over partitions, and returns their rows as bytes, in order."""

_MOST_BYTES: Final = 64 * 2**20
_MOST_PARTITIONS: Final = 64
_GROWTH: Final = 2
# What Spark says when a job has brought more than the driver takes.
_TOO_LARGE: Final = "spark.driver.maxResultSize"


def partition_groups(partitions: int, fetch: Fetch) -> Iterator[list[bytes]]:
    """Yield what job after job brings, each of the next partitions.

    The first takes one, each other up to twice as many as the one before, but no
    more than 64, nor more than 64 MiB if they are as large as the largest so far: so
    partitions that are larger than that come one by one. How large a partition is shows
    only when it is there. If a job brings more than the driver takes, its partitions
    come again, one by one.

    Args:
        partitions: How many there are.
        fetch: Runs a job.
    """
    left, size, largest = range(partitions), 1, 1
    while left:
        group = left[:size]
        try:
            found = fetch(group)
        except Exception as error:
            if len(group) == 1 or _TOO_LARGE not in str(error):
                raise
            largest, size = _MOST_BYTES, 1
            continue
        left = left[len(group) :]
        largest = max(largest, sum(map(len, found)) // len(group))
        fits = _MOST_BYTES // largest
        size = max(1, min(fits, size * _GROWTH, _MOST_PARTITIONS))
        yield found
