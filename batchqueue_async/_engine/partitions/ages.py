"""How long the oldest waiting item of a partition has waited.

No time is kept per item: a mark says that the items from it on came at its time or
later. For `linger` marks are made by `offer` and for the waiting line; the hot path
makes none, so an item may count as a little older than it is, never as younger.

For `stats()` the time is kept at which an item finds its partition empty: it is exact
while that is the oldest. Items that a take, or `DROP_OLDEST`, leaves are dated by the
samples of earlier ones, so they count as older by the time between two takes at most.
A batch that waits for another attempt pauses its partition, and counts from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition

MOST_SAMPLES: Final = 64
"""At most so many samples per partition; then every second one is forgotten."""
SAMPLED_EVERY: Final = 0.05
"""Seconds within which takes that are few items apart share a sample."""


class Mark:
    """Items from this position on came at this time, or later."""

    __slots__ = ("position", "time")

    def __init__(self, position: int, time: float | None) -> None:
        self.position = position
        self.time = time


# Shared by all partitions without marks: an empty deque takes 600 bytes.
_NONE: deque[Mark] = deque()


class Ages:
    """Marks (position, time) of one partition; none without a clock."""

    __slots__ = ("_marks", "_samples", "_unseen", "clock", "linger")

    def __init__(self) -> None:
        self._marks = _NONE
        # Those without a time, which they get when the loop sees them. A copy of their
        # own: to look for them among all marks at each arrival would be quadratic.
        self._unseen: list[Mark] | None = None
        # For takes that left items: the next arrival's position, and the take's time.
        self._samples: list[tuple[int, float]] | None = None
        # Returns None on other threads, where the loop's time may be stale.
        self.clock: Callable[[], float | None] | None = None
        # Seconds that the oldest item may wait for its batch to fill.
        self.linger = 0.0

    def note(self, position: int, *, is_told: bool = True) -> None:
        """Mark that items from `position` on come now.

        Unless they come from a thread and the loop is not told: then it can't say when.
        """
        if self.clock is None:
            return
        if self._marks is _NONE:
            self._marks = deque()
        now = self.clock()
        if now is None and not is_told:
            return
        if not self._marks or self._marks[-1].time != now:
            mark = Mark(position, now)
            if now is None:
                self._unseen = self._unseen or []
                self._unseen.append(mark)
            self._marks.append(mark)

    def oldest(self, position: int, now: float) -> float:
        """Return when the item at `position`, the oldest, came at the earliest."""
        while len(self._marks) > 1 and self._marks[1].position <= position:
            self._marks.popleft()
        while self._unseen:
            # It came from a thread; the loop sees it now for the first time. From the
            # front: a signal handler may put an item in meanwhile, which adds a mark.
            self._unseen[0].time = now
            del self._unseen[0]
        time = self._marks[0].time if self._marks else None
        return now if time is None else time

    def forget(self) -> None:
        """Nothing waits any more; after a burst there may be as many marks as items."""
        if len(self._marks) > MOST_SAMPLES:
            self._marks, self._unseen = _NONE, None

    def sample(self, partition: Partition[Any]) -> None:
        """Sample the time as some items leave and some stay: others come later."""
        samples, position = self._samples or [], partition.accepted
        now, apart = partition.clock(), partition.maxsize // MOST_SAMPLES
        if samples:
            last, time = samples[-1]
            if position - last <= apart and now - time < SAMPLED_EVERY:
                return
        oldest = partition.accounts.taken_out
        # Of the samples before all waiting items only the last one is needed.
        while len(samples) > 1 and samples[1][0] <= oldest:
            del samples[0]
        if len(samples) >= MOST_SAMPLES:
            del samples[1::2]
        samples.append((position, now))
        self._samples = samples

    def age(self, partition: Partition[Any]) -> float:
        """Return for how many seconds its oldest item has waited; 0.0 without any.

        One whose batch waits for its next attempt counts since the first one failed.
        """
        if not (partition.items or partition.accounts.in_flight):
            return 0.0
        now = since = partition.clock()
        if partition.items:
            oldest, since = partition.accounts.taken_out, partition.filled_at
            for position, time in self._samples or ():
                if position <= oldest:
                    since = max(since, time)
        if partition.accounts.in_flight and (pausing := partition.pausing) is not None:
            since = since if pausing.since is None else min(since, pausing.since)
        return max(0.0, now - since)
