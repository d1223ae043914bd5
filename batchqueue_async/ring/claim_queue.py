"""The claims that wait for room, first come, first served.

Invariants:
* `claimed` counts what was granted: a claim that was granted holds its sequences before
  its producer has run again, so nobody overtakes it.
* When a producer gives its grant back, later grants whose producers have not run move
  down. If one of them has run, or somebody has claimed without waiting, the sequences
  cannot be given back: they become a hole.

Giving a grant back takes the same time however many claims there are, since no claim is
moved then: its `place` is the highest sequence it would have if nobody had left, and
the sequences of those who did are subtracted when its producer runs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from typing import Final

_NOWHERE: Final = -1


class WaitingClaim:
    """One claim, on the loop or on another thread.

    Attributes:
        n: How many sequences it wants.
        high: The highest one that it got; None while it waits. It may still move down
            until its producer runs.
        wake: Lets its producer look again: it was granted, or the ring is closed.
        wake_again: The same, where a signal handler may have cut that off.
        place: Until its producer runs, the highest sequence it would have if no claim
            granted before it had left.
        has_left: Whether its sequences were given back.
    """

    __slots__ = ("has_left", "high", "n", "place", "wake", "wake_again")

    wake: Callable[[], object]
    wake_again: Callable[[], object]

    def __init__(self, n: int) -> None:
        self.n: int = n
        self.high: int | None = None
        self.place: int = _NOWHERE
        self.has_left: bool = False
        # A thread that is woken looks by itself.
        self.wake_again = bool


class ClaimQueue:
    """FIFO of claims that wait, and of those that were granted and have not run yet.

    `wanted` is how many sequences the `waiting` claims want together.
    """

    __slots__ = (
        "_dismissed",
        "_final",
        "_granted",
        "_left",
        "_left_before",
        "waiting",
        "wanted",
    )

    def __init__(self) -> None:
        self.waiting: OrderedDict[WaitingClaim, None] = OrderedDict()
        self._dismissed: list[WaitingClaim] = []
        # The first one has neither run nor left; others may have.
        self._granted: deque[WaitingClaim] = deque()
        self._left = 0  # Sequences of claims in `_granted` that left,
        self._left_before = 0  # and of those popped from it before.
        self._final = _NOWHERE  # Up to this place no grant can be given back.
        self.wanted: int = 0

    @property
    def first(self) -> WaitingClaim:
        """The first waiting claim."""
        return next(iter(self.waiting))

    def wanted_up_to(self, claims: Collection[WaitingClaim]) -> int:
        """Return how many sequences all want up to the last of `claims`, or else 0."""
        # Backwards, since mostly the claim that was appended last is asked about.
        wanted = self.wanted
        for claim in reversed(self.waiting):
            if claim in claims:
                break
            wanted -= claim.n
        return wanted

    def append(self, claim: WaitingClaim) -> None:
        """Let the claim wait behind all others."""
        self.waiting[claim] = None
        self.wanted += claim.n

    def settled(self, claimed: int) -> int:
        """Return the highest claimed sequence that cannot be given back any more."""
        self.forget()
        if not self._granted:
            return claimed
        first = self._granted[0]
        return min(claimed, first.place - self._left_before - first.n)

    def grant(self, claimed: int) -> int:
        """Give the first waiting claim its sequences; returns the highest of them.

        The caller notes that, and wakes it.
        """
        claim = self.first
        if self._granted and self._end != claimed:
            # Somebody claimed in between without waiting: giving earlier grants back
            # would leave a hole before that claim.
            self._final = max(self._final, self._granted[-1].place)
        if not self._granted or self._granted[-1] is not claim:
            self._granted.append(claim)
        # From here on there is no call, after which a signal handler could raise.
        del self.waiting[claim]
        self.wanted -= claim.n
        claim.high = high = claimed + claim.n
        claim.place = high + self._left_before + self._left
        return high

    def wake_granted(self) -> None:
        """Wake those that were granted and have not run: a `wake` was cut off."""
        for claim in self._granted:
            if claim.place != _NOWHERE and not claim.has_left:
                claim.wake()

    def remove(self, claim: WaitingClaim) -> None:
        """Take out a claim whose producer runs: what it was granted is final."""
        if claim in self.waiting:
            del self.waiting[claim]
            self.wanted -= claim.n
        elif claim.place != _NOWHERE and not claim.has_left:
            claim.high = self._high(claim)
            self._final = max(self._final, claim.place)
            claim.place = _NOWHERE
            self.forget()

    def give_back(self, claim: WaitingClaim, claimed: int) -> bool:
        """Take a grant back; returns False if it is final, or would leave a hole.

        The caller notes that, and calls `forget`.
        """
        if claim.has_left or claim.place <= self._final:
            return False
        if self._end != claimed:
            return False
        # As in `grant`: no call from here on.
        claim.has_left, claim.high = True, None
        self._left += claim.n
        return True

    def dismiss(self) -> None:
        """Wake all that wait, without granting anything: the ring is closed."""
        try:
            self._wake_waiting()
        except BaseException:
            # As from a signal handler: some would wait for ever.
            self._wake_waiting()
            raise
        finally:
            self._dismissed += self.waiting
            self.waiting, self.wanted = OrderedDict(), 0

    def call_back_again(self) -> None:
        """Have producers run on whose wake-up, or the call after it, was cut off."""
        for claim in (*self._granted, *self._dismissed):
            claim.wake_again()

    def _wake_waiting(self) -> None:
        for claim in list(self.waiting):
            claim.wake()

    @property
    def _end(self) -> int:
        """The highest granted sequence; meaningless once the last grant is final."""
        return self._granted[-1].place - self._left_before - self._left

    def _high(self, claim: WaitingClaim) -> int:
        left = self._left_before
        for each in self._granted:
            if each is claim:
                break
            if each.has_left:
                left += each.n
        return claim.place - left

    def forget(self) -> None:
        """Forget granted claims at the head that have run or left."""
        granted = self._granted
        while granted and (granted[0].has_left or granted[0].place == _NOWHERE):
            claim = granted[0]
            if claim.has_left:
                self._left -= claim.n
                self._left_before += claim.n
            del granted[0]
        if not granted:
            self._left_before, self._final = 0, _NOWHERE
