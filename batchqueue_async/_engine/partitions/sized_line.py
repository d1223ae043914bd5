"""The producers that wait in a partition whose items have sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.partitions.waiting_line import Waiter, WaitingLine
from batchqueue_async._policies.sizing import Exact

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition


class SizedLine(WaitingLine):
    """A line whose slots are reserved with the room that their items take.

    A slot is reserved if its item fits, too: nobody overtakes one whose item doesn't.
    """

    __slots__ = ("_arrivals", "_held", "_partition", "_sizes", "reserved_size")

    def __init__(self, partition: SizedPartition[Any]) -> None:
        super().__init__()
        self._partition = partition
        # Of what the reserved slots are for.
        self.reserved_size: Exact = 0
        # Of each waiter: his number among all of the queue, and the sizes of his chunk.
        self._arrivals: dict[Waiter, int] = {}
        self._sizes: dict[Waiter, Sequence[Exact]] = {}
        # What of the reserved size is his.
        self._held: dict[Waiter, Exact] = {}

    @property
    def next_number(self) -> int | None:
        """The number of the first waiter that lacks slots or room."""
        return None if self.unserved is None else self._arrivals[self.unserved]

    def expect(self, waiter: Waiter, sizes: Sequence[Exact]) -> None:
        """Know what a waiter comes with, before he joins."""
        self._sizes[waiter] = sizes
        self._arrivals[waiter] = next(self._partition.room.numbers)

    def reserve(self, free: int) -> None:
        room = self._partition.room
        while free > 0 and (waiter := self.unserved) is not None:
            share: int = 0
            total: Exact = 0
            if room.is_open_to(self._partition):
                share, total = room.fitting(self._lacking(waiter, free))
            if not share:
                room.stand_in_line(self._partition)
                return
            held, own = self._held.get(waiter, 0) + total, self.reserved_size + total
            in_all = room.reserved + total
            # No call until all is changed.
            waiter.granted += share
            self.reserved += share
            self._held[waiter] = held
            self.reserved_size, room.reserved = own, in_all
            free -= share
            if waiter.granted == waiter.wants:
                self.unserved = waiter.behind
            waiter.wake()

    def filled(self, waiter: Waiter, count: int) -> None:
        is_done = count == waiter.wants
        self._release(waiter, sum(self._granted(waiter, count)))
        super().filled(waiter, count)
        # Last: who is struck before it can still leave.
        if is_done:
            self._forget(waiter)

    def leave(self, waiter: Waiter) -> None:
        if waiter.line is self:
            self._release(waiter, self._held.get(waiter, 0))
            super().leave(waiter)
            self._forget(waiter)

    def _release(self, waiter: Waiter, size: Exact) -> None:
        """Let go of so much of what is reserved for a waiter."""
        room = self._partition.room
        held, own = self._held.get(waiter, 0) - size, self.reserved_size - size
        in_all = room.reserved - size
        # No call until all is changed.
        self._held[waiter] = held
        self.reserved_size, room.reserved = own, in_all

    def _granted(self, waiter: Waiter, count: int) -> Sequence[Exact]:
        """Return the sizes of the next items that he puts in."""
        sizes = self._sizes[waiter]
        first = len(sizes) - waiter.wants
        return sizes[first : first + count]

    def _lacking(self, waiter: Waiter, count: int) -> Sequence[Exact]:
        """Return the sizes of the next items that he has no slots for."""
        sizes = self._sizes[waiter]
        first = len(sizes) - waiter.wants + waiter.granted
        return sizes[first : first + count]

    def _forget(self, waiter: Waiter) -> None:
        self._sizes.pop(waiter, None)
        self._arrivals.pop(waiter, None)
        self._held.pop(waiter, None)
