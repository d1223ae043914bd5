"""How long the oldest waiting item of a partition has waited, for `linger`.

There is no time per item: a mark says that what follows it came at its time or later.
Marks are made where items come in by the long way; the hot path makes none, so an item
may count as a little older than it is, never as younger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False, repr=False)
class Mark:
    """Items from this position on came at this time, or later."""

    position: int
    time: float | None


# Stands for the marks of who needs none: an empty deque takes 600 bytes.
_NONE: deque[Mark] = deque()


class Ages:
    """Marks (position, time) of one partition; none without a clock."""

    __slots__ = ("_marks", "clock", "linger")

    def __init__(self) -> None:
        self._marks = _NONE
        # Returns None on other threads, where the loop's time may be an old one.
        self.clock: Callable[[], float | None] | None = None
        # Seconds that the oldest item may wait for its batch to fill.
        self.linger = 0.0

    def note(self, position: int) -> None:
        """Items from `position` on come now."""
        if self.clock is None:
            return
        if self._marks is _NONE:
            self._marks = deque()
        now = self.clock()
        if not self._marks or self._marks[-1].time != now:
            self._marks.append(Mark(position, now))

    def oldest(self, position: int, now: float) -> float:
        """Return when the item at `position`, the oldest, came at the earliest."""
        while len(self._marks) > 1 and self._marks[1].position <= position:
            self._marks.popleft()
        # Of a copy: a signal handler may put in meanwhile, and make a mark.
        for mark in tuple(self._marks):
            if mark.time is None:
                # It came from a thread; the loop sees it now for the first time.
                mark.time = now
        time = self._marks[0].time if self._marks else None
        return now if time is None else time
