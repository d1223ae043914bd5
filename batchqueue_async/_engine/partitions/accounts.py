"""What became of a partition's items, in numbers, and who waits for which number.

Invariant (promise A1): every accepted item is counted exactly once, as waiting, in
flight, or one of the five outcomes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import Literal, Protocol

Outcome = Literal["handled", "failed", "dropped", "unhandled", "returned"]


class Watcher(Protocol):
    """Somebody who waits until all items up to a position are settled."""

    def reached(self) -> None:
        """Called once: all items up to the position are settled."""


class Accounts:
    """Running totals of one partition; `waiting` is the length of its buffer."""

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
        # Of these, the ones that came after closing: there was no question of room.
        self.rejected_closed = 0
        self.in_flight = 0
        self.handled = 0
        self.failed = 0
        self.dropped = 0
        self.unhandled = 0
        self.returned = 0
        # Seconds that handlers have spent on the items.
        self.busy = 0.0
        # Items that have left the buffer, in order: the position of its first item.
        self.taken_out = 0
        # First positions of what was taken and is not settled, in ascending order.
        self._unsettled: list[int] = []
        # The position of each, lowest first: what is accepted never becomes less. None
        # where nobody watches: one object less to look at. Not a plain dict, whose
        # first entry is the longer to find the more were taken out before it.
        self.watchers: OrderedDict[Watcher, int] | None = None

    @property
    def is_watched(self) -> bool:
        return self.watchers is not None

    def take(self, count: int) -> None:
        """Items left the buffer for their handlers."""
        self.taken_out += count
        self.in_flight += count

    def track(self, first: int) -> None:
        """Items from position `first` on are on their way, as one share of a batch."""
        unsettled = self._unsettled
        if unsettled and first < unsettled[-1]:
            insort(unsettled, first)
        else:
            unsettled.append(first)

    def untrack(self, first: int) -> None:
        """The share is settled, or others stand for it now."""
        del self._unsettled[bisect_left(self._unsettled, first)]

    def settle(self, outcome: Outcome, count: int, first: int) -> None:
        """A share of a batch, items that were in flight, has ended."""
        self.in_flight -= count
        if outcome == "handled":
            self.handled += count
        else:
            setattr(self, outcome, getattr(self, outcome) + count)
        unsettled = self._unsettled
        # The oldest one is settled first, unless it is retried.
        del unsettled[0 if unsettled[0] == first else bisect_left(unsettled, first)]
        if self.watchers is not None:
            self.tell_watchers()

    def settle_some(self, handled: int, first: int, rest: int) -> None:
        """Of a share some items were handled; the others are from `rest` on."""
        self.in_flight -= handled
        self.handled += handled
        unsettled = self._unsettled
        place = bisect_left(unsettled, first)
        # In place, so that no lack of memory can strike halfway.
        while place + 1 < len(unsettled) and unsettled[place + 1] < rest:
            unsettled[place] = unsettled[place + 1]
            place += 1
        unsettled[place] = rest
        self.tell_watchers()

    def return_waiting(self, count: int) -> None:
        """Items ended while they waited: they were left at the deadline."""
        self.taken_out += count
        self.returned += count

    def charge(self, seconds: float) -> None:
        """A handler has spent so long on items of the partition."""
        self.busy += seconds

    def watch(self, position: int, watcher: Watcher) -> bool:
        """Tell `watcher` once, when every item before `position` is settled.

        Positions must not go down from call to call, and a watcher watches once.

        Returns:
            False if that is so already, and nobody will be told.
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

    def is_watched_by(self, watcher: Watcher) -> bool:
        """Whether its position has not been reached, here."""
        watchers = self.watchers
        return watchers is not None and watcher in watchers

    def tell_watchers(self) -> None:
        """Tell those whose position is reached."""
        watchers = self.watchers
        if watchers is None:
            return
        settled = self._settled_to()
        while watchers and next(iter(watchers.values())) <= settled:
            watcher, _ = watchers.popitem(last=False)
            watcher.reached()
        if not watchers:
            self.watchers = None

    def _settled_to(self) -> int:
        return self._unsettled[0] if self._unsettled else self.taken_out
