"""What of a batch came from one partition, and how far a batch has come."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.accounts import Outcome
    from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")

# How far a batch has come, where that matters to who goes on after a signal handler has
# raised: plain numbers, since each batch changes its own several times.
WAITING = 0
INSIDE = 1
"""Its handler was called; its drain task is inside, by the handler's lock."""
RETURNED = 2
"""That is over, and it is not decided yet what came of it."""
PARTED = 3
"""What was handled of it is booked, and no part of it any more."""
TOLD = 4
"""It has failed, and `on_error` or the log was told."""
NOTED = 5
"""It is only to be settled."""


class Share(Generic[T]):
    """The part of a batch that came from one partition; never changed."""

    __slots__ = ("count", "first", "partition")

    def __init__(self, partition: Partition[T], count: int, first: int) -> None:
        self.partition = partition
        self.count = count
        # No item of it has an earlier position in the partition.
        self.first = first


def settle(shares: list[Share[Any]], outcome: Outcome) -> None:
    """Book the shares from the last one on; those that are booked leave the list."""
    while shares:
        share = shares[-1]
        share.partition.accounts.settle(outcome, share.count, share.first)
        # No call in between.
        del shares[-1]


def cut(shares: deque[Share[T]], n: int) -> list[Share[T]]:
    """Take the shares of the first `n` items off the front of `shares`."""
    front = []
    while n:
        share = shares.popleft()
        count = min(share.count, n)
        if count < share.count:
            rest = Share(share.partition, share.count - count, share.first)
            shares.appendleft(rest)
        front.append(Share(share.partition, count, share.first))
        n -= count
    return front
