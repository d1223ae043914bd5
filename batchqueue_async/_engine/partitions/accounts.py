"""Counts what became of a partition's items, and tells watchers what is settled.

Invariant (promise A1): every accepted item is counted exactly once, as waiting, in
flight, or one of the five outcomes. A signal handler may raise after any call: so
`take`, `settle` and `settle_some` change numbers without one, all of them or none. In
the same way items that leave a partition move from `items` to `taken`, and from there
into batches, or among the leftovers. A move that was cut short goes on from there, and
at each moment an item is in exactly one place.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")

Outcome = Literal["handled", "failed", "dropped", "unhandled", "returned"]


class Watcher(Protocol):
    """Somebody who waits until all items up to a position are settled."""

    def reached(self) -> None:
        """Called when all items up to the position are settled; then it is forgotten.

        If it raises it is called again, so no call may follow the line that counts it.
        """


class Accounts:
    """Running totals of one partition; `waiting` is the length of its buffer."""

    lets_go = False
    """Whether `tell_watchers` has to be called whenever something is settled."""

    __slots__ = (
        "_unsettled",
        "busy",
        "dropped",
        "failed",
        "handled",
        "in_flight",
        "rejected",
        "rejected_closed",
        "returned",
        "taken_out",
        "unhandled",
        "watchers",
    )

    def __init__(self) -> None:
        self.rejected = 0
        # Of these, the ones that were refused because it was closed, and not full.
        self.rejected_closed = 0
        self.in_flight = 0
        self.handled = 0
        self.failed = 0
        self.dropped = 0
        self.unhandled = 0
        self.returned = 0
        # Seconds that handlers have spent on the items.
        self.busy = 0.0
        # How many items have left the buffer: the position of its first item.
        self.taken_out = 0
        # How many items of the last take are not settled, by the position of the first
        # of them, ascending: as one group, or one per handler if somebody watches.
        self._unsettled: dict[int, int] = {}
        # The position of each watcher, lowest first, since positions only grow. None
        # without watchers: one object less to look at. Not a plain dict, whose first
        # entry takes the longer to find the more were removed before it.
        self.watchers: OrderedDict[Watcher, int] | None = None

    @property
    def is_watched(self) -> bool:
        return self.watchers is not None

    def take(self, count: int) -> int:
        """Count items that leave the buffer for handlers; all before are settled.

        Returns:
            The position of the first one.
        """
        first = self.taken_out
        self._unsettled = {first: count} if count else {}
        self.taken_out = first + count
        self.in_flight += count
        return first

    def note_groups(self, counts: dict[int, int]) -> None:
        """Count the last take in groups: so many items, by the first one's position."""
        self._unsettled = counts

    def settle(self, outcome: Outcome, count: int, first: int) -> None:
        """Count a share of a batch, which was in flight, as ended.

        After this `tell_watchers` has to be called, for watchers and waits for room.
        """
        unsettled = self._unsettled
        if first not in unsettled:
            # A forked child has forgotten what is in flight in its parent.
            return
        if unsettled[first] == count:
            del unsettled[first]
        else:
            unsettled[first] -= count
        self.in_flight -= count
        if outcome == "handled":
            self.handled += count
        elif outcome == "failed":
            self.failed += count
        elif outcome == "unhandled":
            self.unhandled += count
        else:
            self.returned += count

    def settle_some(self, handled: int, left: int, first: int, rest: int) -> None:
        """Count a part of a share as handled; `left` items remain, from `rest` on."""
        counts = self._unsettled.copy()
        counts[first] -= handled + left
        counts[rest] = counts.get(rest, 0) + left
        counts = {each: counts[each] for each in sorted(counts) if counts[each]}
        # No call from here on.
        self._unsettled = counts
        self.in_flight -= handled
        self.handled += handled

    def without(self, position: int) -> OrderedDict[Watcher, int] | None:
        """Return the watchers as if the item at `position` had never come."""
        if self.watchers is None:
            return None
        return OrderedDict(
            (watcher, until - (until > position))
            for watcher, until in self.watchers.items()
        )

    def return_waiting(self, count: int) -> None:
        """Count waiting items as returned: they were left at the deadline."""
        self.taken_out += count
        self.returned += count

    def charge(self, seconds: float) -> None:
        self.busy += seconds

    def watch(self, position: int, watcher: Watcher) -> bool:
        """Tell `watcher` once, when every item before `position` is settled.

        Positions must not go down from call to call, and a watcher watches once.

        Returns:
            False if they are settled already, so that nobody will be told.
        """
        if position <= self._settled_to():
            return False
        if self.watchers is None:
            self.watchers = OrderedDict()
        self.watchers[watcher] = position
        return True

    def unwatch(self, watcher: Watcher) -> None:
        if self.watchers is not None:
            self.watchers.pop(watcher, None)
            self.watchers = self.watchers or None

    def leave_out(self, watcher: Watcher) -> None:
        """Tell a watcher as if its position were reached."""
        watchers = self.watchers
        if watchers is not None and watcher in watchers:
            watcher.reached()
            # No call in between, as below.
            del watchers[watcher]
            if not watchers:
                self.watchers = None

    def is_watched_by(self, watcher: Watcher) -> bool:
        """Whether the watcher still waits for its position here."""
        watchers = self.watchers
        return watchers is not None and watcher in watchers

    def tell_watchers(self) -> None:
        """Tell the watchers whose position is reached."""
        watchers = self.watchers
        if watchers is None:
            return
        settled = self._settled_to()
        while watchers:
            watcher, position = next(iter(watchers.items()))
            if position > settled:
                break
            watcher.reached()
            # No call in between: the watcher has counted it, and must be told only
            # once.
            del watchers[watcher]
        if not watchers:
            self.watchers = None

    def _settled_to(self) -> int:
        return next(iter(self._unsettled), self.taken_out)


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


def return_taken(partition: Partition[T], left: list[T]) -> None:
    """Move items that were removed and not counted as taken to `left`, as returned."""
    if partition.taken is not None and partition.taken_from < 0:
        partition.accounts.return_waiting(len(partition.taken))
        # No call in between.
        left += partition.taken
        partition.taken, partition.taken_from = None, 0


def watch(partition: Partition[Any], watcher: Watcher) -> bool:
    """Tell `watcher` once all items that are in are settled; False if they are."""
    _count_taken(partition)
    return partition.accounts.watch(partition.accepted, watcher)


def _count_taken(partition: Partition[Any]) -> None:
    """Count a take, if it was cut short before that."""
    if partition.taken_from < 0:
        partition.taken_from = partition.accounts.take(len(partition.taken or ()))


def taken_again(partition: Partition[T]) -> list[T]:
    """Return the items of a take that was cut short before all were in batches."""
    accounts, taken = partition.accounts, partition.taken or []
    with partition.guard:
        _count_taken(partition)
        partition.took_one_type = False
        partition.serve_line()
    count = accounts.in_flight
    accounts.note_groups({partition.taken_from: count} if count else {})
    # The list may already be a batch's, with other partitions' items behind these.
    return taken[:count]
