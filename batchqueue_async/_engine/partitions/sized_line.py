"""The line of producers in a partition whose items have sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from batchqueue_async._engine.partitions.waiting_line import Waiter, WaitingLine

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition
    from batchqueue_async._engine.partitions.wait_for_room import ServedWaiter
    from batchqueue_async._policies.sizing import Exact


class SizedLine(WaitingLine):
    """A line whose slots are reserved with the room that their items take.

    A slot is reserved only if its item fits in; no producer overtakes one that waits.
    """

    __slots__ = ("_arrivals", "_held", "_partition", "_sizes", "reserved_size")

    def __init__(self, partition: SizedPartition[Any]) -> None:
        super().__init__()
        self._partition = partition
        # The size of the items for which slots are reserved.
        self.reserved_size: Exact = 0
        # Each waiter's number of arrival in the queue, and the sizes of its chunk.
        self._arrivals: dict[Waiter, int] = {}
        self._sizes: dict[Waiter, Sequence[Exact]] = {}
        # Each waiter's part of the reserved size.
        self._held: dict[Waiter, Exact] = {}

    @property
    def next_number(self) -> int | None:
        """The number of the first waiter that lacks slots or room."""
        return None if self.unserved is None else self._arrivals[self.unserved]

    def expect(self, waiter: Waiter, sizes: Sequence[Exact]) -> None:
        """Note the sizes of a waiter's chunk, before it joins."""
        self._sizes[waiter] = sizes
        self._arrivals[waiter] = next(self._partition.budget.numbers)

    def join(self, waiter: Waiter) -> None:
        if waiter.is_single:
            # Each time: it may have been another producer's before.
            chunk: Any = cast("ServedWaiter", waiter).chunk
            self.expect(waiter, chunk.sizes)
        super().join(waiter)

    def reserve(self, free: int) -> None:
        budget = self._partition.budget
        while free > 0 and (waiter := self.unserved) is not None:
            share: int = 0
            total: Exact = 0
            if budget.is_open_to(self._partition):
                share, total = budget.fitting(self._lacking(waiter, free))
            if not share:
                budget.stand_in_line(self._partition)
                return
            held, own = self._held.get(waiter, 0) + total, self.reserved_size + total
            in_all = budget.reserved + total
            # No call until all is changed.
            budget.open_to = -1
            waiter.granted += share
            self.reserved += share
            self._held[waiter] = held
            self.reserved_size, budget.reserved = own, in_all
            free -= share
            if waiter.granted == waiter.wants:
                self.unserved = waiter.behind
            try:
                waiter.wake()
            except BaseException:
                # If `wake` was interrupted, nobody else would call it again.
                waiter.wake()
                raise

    def filled(self, waiter: Waiter, count: int) -> None:
        is_done = count == waiter.wants
        # Computed by what is kept for the rest, so that it may be done again if struck.
        keeps = sum(self._granted(waiter)[count:])
        self._release(waiter, self._held.get(waiter, 0) - keeps)
        super().filled(waiter, count)
        # Last: a waiter that is struck before this can still leave.
        if is_done:
            self._forget(waiter)

    def leave(self, waiter: Waiter) -> None:
        if waiter.line is self:
            self._release(waiter, self._held.get(waiter, 0))
            super().leave(waiter)
        self._forget(waiter)

    def _release(self, waiter: Waiter, size: Exact) -> None:
        """Release so much of the size that is reserved for a waiter."""
        budget = self._partition.budget
        held, own = self._held.get(waiter, 0) - size, self.reserved_size - size
        in_all = budget.reserved - size
        # No call until all is changed.
        self._held[waiter] = held
        self.reserved_size, budget.reserved = own, in_all

    def _granted(self, waiter: Waiter) -> Sequence[Exact]:
        """Return the sizes of the next items, as many as the waiter has slots for."""
        sizes = self._sizes[waiter]
        first = len(sizes) - waiter.wants
        return sizes[first : first + waiter.granted]

    def _lacking(self, waiter: Waiter, count: int) -> Sequence[Exact]:
        """Return the sizes of the next items that the waiter has no slots for."""
        sizes = self._sizes[waiter]
        first = len(sizes) - waiter.wants + waiter.granted
        return sizes[first : first + count]

    def _forget(self, waiter: Waiter) -> None:
        self._sizes.pop(waiter, None)
        self._arrivals.pop(waiter, None)
        self._held.pop(waiter, None)
