"""Which flow is served next, and how much it gives: deficit round robin.

M. Shreedhar and G. Varghese, Efficient Fair Queueing Using Deficit Round Robin, SIGCOMM
1995. Flows with items stand in a ring. At its turn a flow's deficit grows by its gain,
and it gives as many items as the deficit has room for; what it could not use it keeps
for its next turn, while it has items. A turn takes constant time and, if every gain is
at least one item, gives one item or more: so an item takes constant time, too.

Here items leave in batches, and the gain depends on the batch: it is small enough for
each flow to be in it. So that shares keep to the weights whatever batches there are, a
deficit is not a number of its own: it is the round's target times the flow's weight,
less what the flow has spent. A flow that has spent more, as a large batch ended after
its turn, waits until the targets have risen so far; no other flow waits for that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sized
from typing import Final, Generic, Protocol, TypeVar

from batchqueue_async._policies.selectors import UNIT


class Flow(Protocol):
    """One of those that share the batches.

    Attributes:
        spent: The cost of its items since it came, added to its target at that time.
    """

    spent: int

    @property
    def items(self) -> Sized:
        """The items that it has to give."""

    @property
    def weight(self) -> int:
        """How much it gets, compared with others, in parts of `UNIT`."""


_ITEM: Final = UNIT * UNIT
"""The cost of an item; a flow may spend its weight times the target."""

_NOTHING: Final = -1
"""What a new flow has spent, until its first turn."""

F = TypeVar("F", bound=Flow)


class DeficitRoundRobin(Generic[F]):
    """The ring of the flows that have items."""

    def __init__(self, quantum: int) -> None:
        # The round of each flow's last turn; those of this round are last. Not a plain
        # dict, whose first entry takes the longer to find the more were removed before.
        self._active: OrderedDict[F, int] = OrderedDict()
        self._round = 0
        # The last round's target, and this one's.
        self._floor = self._target = 0
        # By how much the target rises in a round at most.
        self._gain = quantum * UNIT
        # The weight of all flows in the ring together.
        self._weight = 0

    def __len__(self) -> int:
        return len(self._active)

    def flows(self) -> list[F]:
        """Return the flows in the ring, in the order of their turns."""
        return list(self._active)

    def add(self, flow: F) -> None:
        """Put a flow at the end of the ring, unless it is there already."""
        if flow not in self._active:
            flow.spent = _NOTHING
            self._active[flow] = self._round
            self._weight += flow.weight

    def discard(self, flow: F) -> None:
        """Let a flow go that has no items, or may not give any."""
        if flow in self._active:
            self._active.pop(flow, None)
            self._weight -= flow.weight

    def clear(self) -> None:
        self._active.clear()
        self._weight = 0

    def allot(self, most: int | None) -> dict[F, int]:
        """Return how many of its items each flow gives to the next batch.

        Without `most` that is one round, after the rest of one that a batch cut short.
        With it the gain at most fills a batch in one round, so that each flow is in it.
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
            # Only the ring holds flows: without it they would be lost with their items.
            self._put_back(shares)
            raise
        return shares

    def _put_back(self, shares: dict[F, int]) -> None:
        # Flows still have their items until these are taken.
        for flow in shares:
            self.add(flow)

    def _run_round(self, shares: dict[F, int]) -> None:
        for flow, last in list(self._active.items()):
            if last != self._round:
                self._serve(flow, len(flow.items), shares)
        self._begin_round(self._gain)
        for flow in self.flows():
            self._serve(flow, len(flow.items), shares)
        if self._active and not shares:
            self._skip_rounds(self._gain)

    def _fill(self, most: int, shares: dict[F, int]) -> None:
        fair = max(most, len(self._active)) * _ITEM // max(1, self._weight)
        gain = max(1, min(self._gain, fair))
        # If a larger batch has set the target, it is lowered: the others need not wait
        # for the end of that round.
        self._target = min(self._target, self._floor + gain)
        # If there are places for all, one is kept for each flow that has had none.
        unseen = len(self._active) if most >= len(self._active) else 0
        in_vain = 0
        while most and self._active:
            flow, last = next(iter(self._active.items()))
            if last == self._round:
                self._begin_round(gain)
            unseen = max(0, unseen - 1)
            given = self._serve(flow, most - unseen, shares)
            if unseen and flow in self._active:
                # What is still due to it, the flow gets in its next turn.
                self._end_turn(flow)
            most -= given
            in_vain = 0 if given else in_vain + 1
            if in_vain >= len(self._active) > 0:
                self._skip_rounds(gain)
                in_vain = 0

    def _begin_round(self, gain: int) -> None:
        self._round += 1
        self._floor = self._target
        self._target += gain

    def _serve(self, flow: F, most: int, shares: dict[F, int]) -> int:
        """Have a flow give what its turn and the batch have room for."""
        if flow.spent == _NOTHING:
            flow.spent = flow.weight * self._floor
        given = shares.get(flow, 0)
        left = max(0, len(flow.items) - given)
        due = max(0, (flow.weight * self._target - flow.spent) // _ITEM)
        count = min(left, due, most)
        if count > 0:
            shares[flow] = given + count
            flow.spent += count * _ITEM
        if count >= left:
            # A flow that is empty leaves, and its unused share does not add up
            # meanwhile.
            self.discard(flow)
        elif count >= due:
            self._end_turn(flow)
        return count

    def _end_turn(self, flow: F) -> None:
        self._active[flow] = self._round
        self._active.move_to_end(flow)

    def _skip_rounds(self, gain: int) -> None:
        """Run the rounds in which nobody's deficit reaches one item."""
        first = min(-(-(flow.spent + _ITEM) // flow.weight) for flow in self._active)
        self._target += max(0, (first - self._target - 1) // gain * gain)
