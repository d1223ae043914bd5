"""Who is served next, and with how much: deficit round robin.

M. Shreedhar and G. Varghese, Efficient Fair Queueing Using Deficit Round Robin, SIGCOMM
1995. Flows with items stand in a ring. At its turn a flow's deficit grows by its gain,
and it gives as many items as the deficit has room for; what it could not use it keeps
for its next turn, while it has items. A turn takes constant time and, where every gain
is at least one item, gives one item or more: so does each item.

Here a flow's items go in batches, and gains go by the batch. One that ends in the
middle of a turn leaves that turn open for the next, and one that ends in the middle of
a round leaves that round, with its gains: so whatever batches there are, nobody is
ahead by more than a turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sized
from typing import Generic, Protocol, TypeVar

from batchqueue_async._policies.fairness import UNIT


class Flow(Protocol):
    """One of those who share; deficits and weights are in parts of `UNIT`."""

    deficit: int

    @property
    def items(self) -> Sized:
        """What it has to give."""

    @property
    def weight(self) -> int:
        """How much it gets, compared with others."""


F = TypeVar("F", bound=Flow)


class DeficitRoundRobin(Generic[F]):
    """The ring of the flows that have items."""

    __slots__ = (
        "_active",
        "_in_turn",
        "_quantum",
        "_round",
        "_share",
        "_total",
        "_weight",
    )

    def __init__(self, quantum: int) -> None:
        # Not a plain dict, whose first entry is the longer to find the more were taken
        # out before it. With the round of the last turn: those of this one come last.
        self._active: OrderedDict[F, int] = OrderedDict()
        self._round = 0
        # This round's gains are weight * share / total.
        self._share, self._total = quantum, 1
        self._quantum = quantum
        # Of all in the ring together.
        self._weight = 0
        # The first one, if the last batch ended in the middle of its turn.
        self._in_turn: F | None = None

    def __len__(self) -> int:
        return len(self._active)

    def flows(self) -> list[F]:
        """Return those in the ring, in the order of their turns."""
        return list(self._active)

    def add(self, flow: F) -> None:
        """Have a flow take part, from the end of the ring; once is enough."""
        if flow not in self._active:
            self._active[flow] = self._round
            self._weight += flow.weight

    def discard(self, flow: F) -> None:
        """Let a flow go that has no items, or may not give any."""
        if flow in self._active:
            self._active.pop(flow, None)
            self._weight -= flow.weight
        flow.deficit = 0
        if self._in_turn is flow:
            self._in_turn = None

    def clear(self) -> None:
        """Let all go."""
        self._active.clear()
        self._weight = 0
        self._in_turn = None

    def allot(self, most: int | None) -> dict[F, int]:
        """Return how many of its items each flow gives to the next batch.

        Without `most` that is one round, after the one that a batch had cut. With it
        gains are at most what fills such a batch in one round, so that each is in it.
        """
        shares: dict[F, int] = {}
        try:
            if most is None:
                while self._active and not shares:
                    self._run_round(shares)
            else:
                self._fill(most, shares)
            self._put_back(shares)
        except BaseException:
            # Out of the ring nobody holds them, nor what they have.
            self._put_back(shares)
            raise
        return shares

    def _put_back(self, shares: dict[F, int]) -> None:
        # They have their items until these are taken.
        for flow in shares:
            self.add(flow)

    def _run_round(self, shares: dict[F, int]) -> None:
        for flow, last in list(self._active.items()):
            if last != self._round or flow is self._in_turn:
                self._gain(flow)
                self._serve(flow, len(flow.items), shares)
        self._begin_round(self._quantum, 1)
        for flow in self.flows():
            self._gain(flow)
            self._serve(flow, len(flow.items), shares)
        if self._active and not shares:
            self._skip_rounds()

    def _fill(self, most: int, shares: dict[F, int]) -> None:
        count, total = len(self._active), max(1, self._weight)
        share = max(most, count) * UNIT
        if share > self._quantum * total:
            share, total = self._quantum, 1
        in_vain = 0
        while most and self._active:
            flow, last = next(iter(self._active.items()))
            if last == self._round and flow is not self._in_turn:
                self._begin_round(share, total)
            self._gain(flow)
            given = self._serve(flow, most, shares)
            most -= given
            in_vain = 0 if given else in_vain + 1
            if in_vain >= len(self._active) > 0:
                self._skip_rounds()
                in_vain = 0

    def _begin_round(self, share: int, total: int) -> None:
        self._round += 1
        self._share, self._total = share, total

    def _gain(self, flow: F) -> None:
        """Begin its turn, unless that is open."""
        if flow is not self._in_turn:
            flow.deficit += max(1, flow.weight * self._share // self._total)
            self._active[flow] = self._round

    def _serve(self, flow: F, most: int, shares: dict[F, int]) -> int:
        """Have a flow give what its turn and the batch have room for."""
        given = shares.get(flow, 0)
        left = max(0, len(flow.items) - given)
        count = min(left, flow.deficit // UNIT, most)
        if count > 0:
            shares[flow] = given + count
        if count >= left:
            # What it had no use for does not add up while it is away.
            self.discard(flow)
            return count
        flow.deficit -= count * UNIT
        if flow.deficit >= UNIT:
            self._in_turn = flow
        else:
            self._in_turn = None
            self._active.move_to_end(flow)
        return count

    def _skip_rounds(self) -> None:
        """Run the rounds in which nobody's deficit reaches one item."""
        gains = {
            flow: max(1, flow.weight * self._share // self._total)
            for flow in self._active
        }
        rounds = min(-(-(UNIT - flow.deficit) // gain) for flow, gain in gains.items())
        for flow, gain in gains.items():
            flow.deficit += (rounds - 1) * gain
