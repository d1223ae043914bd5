"""What became of a partition's items, in numbers, and who waits for which number.

Invariant (promise A1): every accepted item is counted exactly once, as waiting, in
flight, or one of the five outcomes.
"""

from __future__ import annotations

from typing import Literal, Protocol

Outcome = Literal["handled", "failed", "dropped", "unhandled", "returned"]


class Watcher(Protocol):
    """Somebody who waits until all items up to a position are settled."""

    def reached(self) -> None:
        """It is so."""


class Accounts:
    """Running totals of one partition; `waiting` is the length of its buffer."""

    __slots__ = (
        "_unsettled_from",
        "_watchers",
        "dropped",
        "failed",
        "handled",
        "in_flight",
        "rejected",
        "returned",
        "taken_out",
        "unhandled",
    )

    def __init__(self) -> None:
        self.rejected = 0
        self.in_flight = 0
        self.handled = 0
        self.failed = 0
        self.dropped = 0
        self.unhandled = 0
        self.returned = 0
        # Items that have left the buffer, in order: the position of its first item.
        self.taken_out = 0
        self._unsettled_from = 0
        self._watchers: list[tuple[int, Watcher]] = []

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def take(self, count: int) -> None:
        """Items left the buffer for a handler; those of the take before are settled."""
        self._unsettled_from = self.taken_out
        self.taken_out += count
        self.in_flight += count

    def settle(self, outcome: Outcome, count: int) -> None:
        """Items that were in flight have ended."""
        self.in_flight -= count
        self._end(outcome, count)
        if not self.in_flight:
            self.tell_watchers()

    def remove_waiting(self, outcome: Outcome, count: int) -> None:
        """Items ended while they waited: displaced, or left at the deadline."""
        self.taken_out += count
        self._end(outcome, count)

    def watch(self, position: int, watcher: Watcher) -> bool:
        """Tell `watcher` once, when every item before `position` is settled.

        Returns:
            False if that is so already, and nobody will be told.
        """
        if position <= self._settled_to():
            return False
        self._watchers.append((position, watcher))
        return True

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers = [each for each in self._watchers if each[1] is not watcher]

    def tell_watchers(self) -> None:
        """Tell those whose position is reached."""
        if not self._watchers:
            return
        settled = self._settled_to()
        told = [each for each in self._watchers if each[0] <= settled]
        self._watchers = [each for each in self._watchers if each[0] > settled]
        for _, watcher in told:
            watcher.reached()

    def _settled_to(self) -> int:
        # One take at a time: until it is settled as a whole, its start counts.
        return self._unsettled_from if self.in_flight else self.taken_out

    def _end(self, outcome: Outcome, count: int) -> None:
        setattr(self, outcome, getattr(self, outcome) + count)
