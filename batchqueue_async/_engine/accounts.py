"""What became of a partition's items, in numbers.

Invariant (promise A1): every accepted item is counted exactly once, as waiting, in
flight, or one of the five outcomes.
"""

from __future__ import annotations

from typing import Literal

Outcome = Literal["handled", "failed", "dropped", "unhandled", "returned"]


class Accounts:
    """Running totals of one partition; `waiting` is the length of its buffer."""

    __slots__ = (
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

    def take(self, count: int) -> None:
        self.taken_out += count
        self.in_flight += count

    def settle(self, outcome: Outcome, count: int) -> None:
        """Items that were in flight have ended."""
        self.in_flight -= count
        self._end(outcome, count)

    def remove_waiting(self, outcome: Outcome, count: int) -> None:
        """Items ended while they waited: displaced, or left at the deadline."""
        self.taken_out += count
        self._end(outcome, count)

    def _end(self, outcome: Outcome, count: int) -> None:
        setattr(self, outcome, getattr(self, outcome) + count)
