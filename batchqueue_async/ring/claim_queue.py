"""The claims that wait for room, first come, first served.

Invariants:
* `claimed` counts what was granted: a claim that was granted holds its sequences before
  its producer has run again, so nobody overtakes it.
* One that leaves is as if it had never been there: those granted after it, as far as
  they have not run yet, move down; only if one of them has run is there a hole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice


class WaitingClaim:
    """One claim, on the loop or on another thread.

    Attributes:
        n: How many sequences it wants.
        high: The highest one that it got; None while it waits.
        wake: Lets its producer look again: it was granted, or the ring is closed.
    """

    __slots__ = ("high", "n", "wake")

    wake: Callable[[], object]

    def __init__(self, n: int) -> None:
        self.n: int = n
        self.high: int | None = None


class ClaimQueue:
    """FIFO of claims that wait, and of those that were granted and have not run yet."""

    __slots__ = ("_granted", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[WaitingClaim] = deque()
        self._granted: deque[WaitingClaim] = deque()

    @property
    def wanted(self) -> int:
        """How many sequences the waiting claims want together."""
        return sum(claim.n for claim in self.waiting)

    def settled(self, claimed: int) -> int:
        """Return how much of what is claimed cannot be given back any more."""
        highs = [(each.high, each.n) for each in self._granted]
        return min([claimed, *(high - n for high, n in highs if high is not None)])

    def grant(self, high: int) -> None:
        """Give the first waiting claim its sequences, up to `high`."""
        claim = self.waiting.popleft()
        claim.high = high
        self._granted.append(claim)
        claim.wake()

    def remove(self, claim: WaitingClaim) -> None:
        """Its producer runs: what it was granted is final, and it waits no longer."""
        claims = self.waiting if claim.high is None else self._granted
        if claim in claims:
            claims.remove(claim)

    def give_back(self, claim: WaitingClaim, claimed: int) -> bool:
        """Take a grant back; returns False if it is final, or would leave a hole."""
        if claim not in self._granted:
            return False
        assert claim.high is not None
        index = self._granted.index(claim)
        later = list(islice(self._granted, index + 1, None))
        if claim.high + sum(each.n for each in later) != claimed:
            return False
        self._granted.remove(claim)
        for each in later:
            assert each.high is not None
            each.high -= claim.n
        return True

    def dismiss(self) -> None:
        """The ring is closed: nobody who waits gets anything."""
        waiting, self.waiting = self.waiting, deque()
        for claim in waiting:
            claim.wake()
