"""Items on their way to one handler, and the partitions they came from."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from batchqueue_async._engine.accounts import Outcome
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration

T = TypeVar("T")


class Share(Generic[T]):
    """The part of a batch that came from one partition; never changed."""

    __slots__ = ("count", "first", "partition")

    def __init__(self, partition: Partition[T], count: int, first: int) -> None:
        self.partition = partition
        self.count = count
        # No item of it has an earlier position in the partition.
        self.first = first


class Batch(Generic[T]):
    """A list of items with one handler; settled once, as a whole.

    `items` is never given away: each attempt gets a copy of its own, so a handler may
    keep or change its list, and what failed or was left is still known.
    """

    # The first share is kept here, and nearly always it is the only one: with many
    # types, objects that are looked at once in a cycle are the price of a batch.
    __slots__ = (
        "attempts",
        "count",
        "due",
        "first",
        "give_up_at",
        "is_parked",
        "is_settled",
        "items",
        "others",
        "partition",
        "registration",
    )

    def __init__(
        self,
        registration: Registration | None,
        items: list[T],
        partition: Partition[T],
        first: int,
    ) -> None:
        self.registration = registration
        self.items = items
        self.partition = partition
        self.count = len(items)
        self.first = first
        self.others: list[Share[T]] | None = None
        partition.accounts.open(first)
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

    @property
    def shares(self) -> list[Share[T]]:
        """Where the items came from, in their order."""
        return [Share(self.partition, self.count, self.first), *(self.others or ())]

    def add(self, items: list[T], partition: Partition[T], first: int) -> None:
        """Add a share from another partition."""
        self.items.extend(items)
        self._add_share(Share(partition, len(items), first))

    def _add_share(self, share: Share[T]) -> None:
        if self.others is None:
            self.others = []
        self.others.append(share)
        share.partition.accounts.open(share.first)

    def follows(self, other: Batch[T]) -> bool:
        """Whether it goes to the same handler, from one of the same partitions."""
        mine_to, others_to = self.registration, other.registration
        if self is other or mine_to is None or others_to is None:
            return False
        if mine_to.gate is not others_to.gate:
            return False
        mine = {share.partition.index for share in self.shares}
        return not mine.isdisjoint(share.partition.index for share in other.shares)

    def is_kept_out(self, drain_task: int) -> bool:
        """Whether its handler is at work on another one, and cannot be stopped.

        For the drain task that is to deliver it: with its own call still inside it
        would enter the handler twice, whatever the partition.
        """
        registration = self.registration
        if registration is None or not registration.gate.stuck:
            return False
        return any(
            drain_task == stuck.drain_task
            or registration.gate.excludes(registration.slot, stuck.slot)
            or (stuck.batch is not None and self.follows(stuck.batch))
            for stuck in registration.gate.stuck
        )

    def settle(self, outcome: Outcome) -> None:
        """Book how the items ended; only the first call counts."""
        if self.is_settled:
            return
        self.is_settled = True
        if self.registration is not None:
            self.registration.batches -= 1
        self.partition.accounts.settle(outcome, self.count, self.first)
        if self.others is not None:
            for share in self.others:
                share.partition.accounts.settle(outcome, share.count, share.first)

    def charge(self, seconds: float) -> None:
        """Book the time that the handler took to the partitions, by their items."""
        for share in self.shares:
            share.partition.busy += seconds * share.count / len(self.items)

    def hold(self) -> None:
        """Keep further items of these partitions back until `release`."""
        for share in self.shares:
            share.partition.hold()

    def release(self) -> None:
        for share in self.shares:
            share.partition.release()

    def pieces(self, most: int | None) -> list[Batch[T]]:
        """Return batches of at most `most` items, in order, in place of this one."""
        if most is None or len(self.items) <= most:
            return [self]
        shares = deque(self.shares)
        chunks = [
            self.items[start : start + most]
            for start in range(0, len(self.items), most)
        ]
        pieces = [self._piece(chunk, _cut(shares, len(chunk))) for chunk in chunks]
        for share in self.shares:
            share.partition.accounts.close(share.first)
        self.is_settled = True
        if self.registration is not None:
            self.registration.batches -= 1
        return pieces

    def _piece(self, items: list[T], shares: list[Share[T]]) -> Batch[T]:
        first, *others = shares
        piece = Batch(self.registration, items, first.partition, first.first)
        piece.count = first.count
        for share in others:
            piece._add_share(share)
        return piece


def _cut(shares: deque[Share[T]], n: int) -> list[Share[T]]:
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
