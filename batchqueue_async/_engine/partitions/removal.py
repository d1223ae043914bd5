"""How items leave a partition so that none is ever in no place, or in two.

A signal handler may raise after each call, and wherever memory or the stack ends. So
what leaves goes from `items` to `taken` with no call in between, and from there into
batches, or among the leftovers, in the same way. What is cut short goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice, repeat
from operator import delitem
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")

NEVER = object()
"""Not equal to anything that `delitem` returns."""


def cut_off(partition: Partition[T], items: deque[T], count: int) -> list[T]:
    """Move the first items of a partition's deque to its `taken`."""
    was_changing, partition.is_changing = partition.is_changing, True
    try:
        taken = [*islice(items, count)]
        removals: Iterator[object] = map(delitem, repeat(items, count), repeat(0))
        # A look for what is not among them does all, in one instruction and without
        # memory. No call from here on.
        _ = NEVER in removals
        partition.taken, partition.taken_from = taken, -1
    finally:
        if not was_changing:
            partition.is_changing = False
    return taken


def taken_again(partition: Partition[T]) -> list[T]:
    """Return what a take has removed that was cut short, or not sorted to its end."""
    accounts, taken = partition.accounts, partition.taken or []
    with partition.guard:
        if partition.taken_from < 0:
            partition.taken_from = accounts.take(len(taken))
        partition.took_one_type = False
        partition.serve_line()
    count = accounts.in_flight
    accounts.sort({partition.taken_from: count} if count else {})
    # The list may be a batch already, with other partitions' items behind these.
    return taken[:count]
