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


class PartitionGroups:
    """Which partitions the next job takes.

    The first takes one, each other up to twice as many as the one before, but no
    more than 64, nor more than 64 MiB if they are as large as the largest so far: so
    partitions that are larger than that come one by one. How large a partition is shows
    only when it is there. If a job brings more than the driver takes, its partitions
    come again, one by one.

    Args:
        partitions: How many there are.
        fetch: Runs a job.
    """

    def __init__(self, partitions: int, fetch: Fetch) -> None:
        self._left = range(partitions)
        self._fetch = fetch
        self._size = 1
        self._largest = 1

    def __iter__(self) -> Iterator[list[bytes]]:
        """Run job after job; what is yielded is that of the next partitions."""
        while self._left:
            group = self._left[: self._size]
            try:
                found = self._fetch(group)
            except Exception as error:
                if len(group) == 1 or _TOO_LARGE not in str(error):
                    raise
                self._largest, self._size = _MOST_BYTES, 1
                continue
            self._left = self._left[len(group) :]
            self._learn(len(group), sum(map(len, found)))
            yield found

    def _learn(self, partitions: int, size: int) -> None:
        self._largest = max(self._largest, size // partitions)
        fits = _MOST_BYTES // self._largest
        self._size = max(1, min(fits, self._size * _GROWTH, _MOST_PARTITIONS))
