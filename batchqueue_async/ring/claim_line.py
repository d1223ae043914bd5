"""The claims that wait for room, first come, first served.

Invariants:
* `claimed` counts what was granted: a claimant that was granted holds its sequences
  before it has run again, so nobody overtakes it.
* One that leaves is as if it had never been there: those granted after it, as far as
  they have not run yet, move down; only if one of them has run is there a hole.
"""

from __future__ import annotations

from collections import deque

from .claimants import Claimant


class ClaimLine:
    """FIFO of claims that wait, and of those that were granted and have not run yet."""

    __slots__ = ("_granted", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Claimant] = deque()
        self._granted: deque[Claimant] = deque()

    @property
    def wanted(self) -> int:
        """How many sequences the waiting claims want together."""
        return sum(claimant.n for claimant in self.waiting)

    def settled(self, claimed: int) -> int:
        """Return how much of what is claimed cannot be given back any more."""
        highs = [(each.high, each.n) for each in self._granted]
        return min([claimed, *(high - n for high, n in highs if high is not None)])

    def grant(self, high: int) -> None:
        """Give the first waiting claim its sequences, up to `high`."""
        claimant = self.waiting.popleft()
        claimant.high = high
        self._granted.append(claimant)
        claimant.wake()

    def leave(self, claimant: Claimant) -> None:
        """Forget a claim that was granted nothing."""
        if claimant in self.waiting:
            self.waiting.remove(claimant)

    def confirm(self, claimant: Claimant) -> int:
        """The claimant runs: what it was granted is final."""
        if claimant in self._granted:
            self._granted.remove(claimant)
        assert claimant.high is not None
        return claimant.high

    def give_back(self, claimant: Claimant, claimed: int) -> bool:
        """Take a grant back; returns False if it is final, or would leave a hole.

        Args:
            claimant: The one that leaves before it has run.
            claimed: The highest sequence that was claimed by anybody.
        """
        if claimant not in self._granted:
            return False
        assert claimant.high is not None
        index = self._granted.index(claimant)
        later = [self._granted[at] for at in range(index + 1, len(self._granted))]
        if claimant.high + sum(each.n for each in later) != claimed:
            return False
        self._granted.remove(claimant)
        for each in later:
            assert each.high is not None
            each.high -= claimant.n
        return True

    def dismiss(self) -> None:
        """The ring is closed: nobody who waits gets anything."""
        waiting, self.waiting = self.waiting, deque()
        for claimant in waiting:
            claimant.wake()
