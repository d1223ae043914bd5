"""A partition that displaces its oldest items when it is full (DROP_OLDEST)."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from operator import delitem
from typing import TypeVar

from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")


class RollingPartition(Partition[T]):
    """Nobody waits here: a new item always gets in, at the cost of the oldest.

    Displaced items were accepted, so they count as dropped, and `on_drop` gets them.
    """

    def __init__(
        self,
        index: int,
        buffer_size: int,
        due_size: int,
        on_drop: Callable[[list[T]], None],
    ) -> None:
        super().__init__(index, buffer_size, due_size)
        # There is always room.
        self.full_at = sys.maxsize
        self._on_drop = on_drop

    def _init(self, maxsize: int) -> None:
        # A list would move all its items for each one that leaves at its front.
        self._rolling: deque[T] = deque()
        self.items = self._rolling

    def _accept(self, chunk: Sequence[T], displaced: list[T]) -> int:
        count = len(chunk)
        surplus = len(self._rolling) + count - self._maxsize
        if surplus <= 0:
            self._append(chunk)
            return count
        self.ages.sample(self)
        displaced.extend(islice(self._rolling, surplus))
        # If the chunk is longer than the partition, its own first items go, too.
        passed = surplus - len(displaced)
        displaced.extend(chunk[:passed])
        rest = chunk[passed:]
        self._forget(surplus)
        before = self.accounts.dropped
        try:
            self._drop(surplus - passed, passed)
            self._append(rest)
        finally:
            self._on_drop(displaced[: self.accounts.dropped - before])
        return count

    def _drop(self, waiting: int, passed: int) -> None:
        """Drop the oldest waiting items, and count `passed` ones that never got in."""
        items, accounts = self._rolling, self.accounts
        for _ in range(waiting):
            # No call in between, after which a signal handler might raise; not even a
            # `__del__`, since `displaced` keeps the item.
            del items[0]
            accounts.taken_out += 1
            accounts.dropped += 1
        accounts.taken_out += passed
        accounts.dropped += passed

    def _remove(self, most: int | None) -> list[T]:
        items = self._rolling
        if most is None or len(items) <= most:
            self._forget(len(items))
            rest: deque[T] = deque()
            # No call from here on: what a `__del__` or a signal handler has put in
            # before is taken, too, and what it puts in later stays.
            taken, self._rolling, self.items = [*items], rest, rest
            self.taken, self.taken_from = taken, -1
            return taken
        self._forget(most)
        return cut_off(self, items, most)


NEVER = object()
"""Not equal to anything that `delitem` returns."""


def cut_off(partition: Partition[T], items: deque[T], count: int) -> list[T]:
    """Move the first items of a partition's deque to its `taken`."""
    was_changing, partition.is_changing = partition.is_changing, True
    try:
        taken = [*islice(items, count)]
        removals: Iterator[object] = map(delitem, repeat(items, count), repeat(0))
        # Searching for what is not there does all removals, in one instruction and
        # without memory. No call from here on.
        _ = NEVER in removals
        partition.taken, partition.taken_from = taken, -1
    finally:
        if not was_changing:
            partition.is_changing = False
    return taken
