"""Items on their way to one handler, and the partitions they came from."""

from __future__ import annotations

from typing import Generic, TypeVar

from batchqueue_async._engine.accounts import Outcome
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration

T = TypeVar("T")


class Batch(Generic[T]):
    """A list of items with one handler; settled once, as a whole.

    `items` is never given away: each attempt gets a copy of its own, so a handler may
    keep or change its list, and what failed or was left is still known.
    """

    __slots__ = (
        "attempts",
        "due",
        "give_up_at",
        "is_parked",
        "is_settled",
        "items",
        "registration",
        "shares",
    )

    def __init__(
        self,
        registration: Registration | None,
        items: list[T],
        shares: list[tuple[Partition[T], int]],
    ) -> None:
        self.registration = registration
        self.items = items
        # In the order of the items: (partition, how many of them are its).
        self.shares = shares
        self.attempts = 0
        # While parked: when the next attempt is due, and when retrying ends.
        self.due = 0.0
        self.give_up_at: float | None = None
        self.is_settled = False
        self.is_parked = False
        if registration is not None:
            registration.batches += 1

    def __len__(self) -> int:
        return len(self.items)

    def add(self, partition: Partition[T], items: list[T]) -> None:
        self.items.extend(items)
        self.shares.append((partition, len(items)))

    def settle(self, outcome: Outcome) -> None:
        """Book how the items ended; only the first call counts."""
        if self.is_settled:
            return
        self._end()
        for partition, count in self.shares:
            partition.accounts.settle(outcome, count)

    def charge(self, seconds: float) -> None:
        """Book the time that the handler took to the partitions, by their items."""
        for partition, count in self.shares:
            partition.busy += seconds * count / len(self.items)

    def hold(self) -> None:
        """Keep further items of these partitions back until `release`."""
        for partition, _ in self.shares:
            partition.hold.add()

    def release(self) -> None:
        for partition, _ in self.shares:
            partition.hold.remove()

    def pieces(self, most: int | None) -> list[Batch[T]]:
        """Return batches of at most `most` items, in order, in place of this one."""
        if most is None or len(self.items) <= most:
            return [self]
        shares = list(self.shares)
        chunks = [
            self.items[start : start + most]
            for start in range(0, len(self.items), most)
        ]
        self._end()
        return [
            Batch(self.registration, chunk, _cut(shares, len(chunk)))
            for chunk in chunks
        ]

    def _end(self) -> None:
        self.is_settled = True
        if self.registration is not None:
            self.registration.batches -= 1


def _cut(
    shares: list[tuple[Partition[T], int]], n: int
) -> list[tuple[Partition[T], int]]:
    """Remove the shares of the first `n` items from the front of `shares`."""
    front = []
    while n:
        partition, count = shares.pop(0)
        if count > n:
            shares.insert(0, (partition, count - n))
        front.append((partition, min(count, n)))
        n -= min(count, n)
    return front
