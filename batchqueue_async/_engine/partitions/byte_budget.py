"""Items with their sizes, and the room for them that all partitions of a queue share.

Invariants:
* `used <= capacity`, at every moment: what waits, what is reserved for producers that
  have not put it in yet, and what handlers hold above one batch.
* While a producer waits for room here, nobody who came later gets any, wherever he
  wants in: producers that lack nothing but room are served in order of arrival. One
  whose partition has no slot left holds up nobody elsewhere.
* All changes hold the partitions' guard, which is one for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from batchqueue_async._engine.partitions.waiting_line import Waiter, WaitingLine
from batchqueue_async._policies.choices import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.sizing import Exact, exact, measured_by

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.handler_waits import BudgetWait
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition

T = TypeVar("T")

Measure = Callable[[Any], Exact]


class Measured(list[T]):
    """A list of items that knows the size of each; a slice of it does, too."""

    __slots__ = ("sizes",)

    def __init__(self, items: Iterable[T] = (), sizes: Iterable[Exact] = ()) -> None:
        super().__init__(items)
        self.sizes = [*sizes]

    @overload
    def __getitem__(self, place: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> Measured[T]: ...

    def __getitem__(self, place: SupportsIndex | slice) -> T | Measured[T]:
        if isinstance(place, slice):
            return Measured(super().__getitem__(place), self.sizes[place])
        return super().__getitem__(place)

    def of(self, places: Iterable[int]) -> Measured[T]:
        chosen: Measured[T] = Measured()
        for place in places:
            chosen.add(self[place], self.sizes[place])
        return chosen

    def add(self, item: T, size: Exact) -> None:
        """Put one more item at the end; whatever strikes in the middle, or none."""
        count = len(self)
        try:
            self.append(item)
            self.sizes.append(size)
        except BaseException:
            del self[count:], self.sizes[count:]
            raise

    def extend(self, items: Iterable[T]) -> None:
        """Put other measured items at the end."""
        assert isinstance(items, Measured)
        super().extend(items)
        self.sizes.extend(items.sizes)


def measured(
    chunk: Iterable[T], measure: Measure
) -> tuple[Measured[T], Exception | None]:
    """Measure items until one cannot be; returns those before it, and what it raised.

    What comes before an error is accepted, as where an iterable raises midway.
    """
    known: Measured[T] = Measured()
    try:
        for item in chunk:
            known.add(item, measure(item))
    except Exception as error:  # noqa: BLE001 - for the caller to raise
        return known, error
    return known, None


def one_measured(item: T, measure: Measure) -> Measured[T]:
    return Measured((item,), (measure(item),))


# Of what handlers hold, as much as one batch takes no room. Where batches are not
# bounded by size, one batch is the room divided by this.
_ROOM_PER_UNCOUNTED_BATCH = 8


class ByteBudget:
    """What items may take together by their sizes (bytes, mostly), in one queue.

    Every change is a plain method, as in the partitions.
    """

    def __init__(
        self, config: BatchQueueConfig[Any], partitions: Sequence[SizedPartition[Any]]
    ) -> None:
        declared = config.buffer_bytes
        most = None if declared is None else exact(declared)
        self.measure = measured_by(config.size_of, most)
        self.capacity: Exact | float = math.inf if most is None else most
        # What a take removes at most, beside a first item that is larger.
        largest = config.max_batch_bytes
        self.most_taken = None if largest is None else exact(largest)
        # Whether an item that does not fit lets those behind it in its chunk pass.
        self.passes_over = config.when_full is not WhenFull.WAIT
        # How much of what handlers hold takes no room.
        self._uncounted: Exact = (
            0 if most is None else most // _ROOM_PER_UNCOUNTED_BATCH
        )
        self.allow_batches_of(self.most_taken)
        self._partitions = partitions
        self.waiting: Exact = 0
        self.reserved: Exact = 0
        # Taken and not settled, and the largest item since nothing was.
        self.in_hands: Exact = 0
        self.largest: Exact = 0
        # Of all partitions together, as each of them has it.
        self.is_changing = False
        # Arrivals are numbered. The line has the first of each partition that lacks
        # nothing but room; a place that its partition left behind is passed over.
        self.numbers = count()
        self._line: list[tuple[int, int]] = []
        self._places: dict[int, int] = {}
        # Whether an item did not fit since the last take, and whether all drain tasks
        # know that: nothing may linger then.
        self.is_short = False
        self._is_short_known = False
        # Handlers' waits; whatever changes here, they look whether they can go on.
        self.lookers: dict[BudgetWait, None] = {}

    def allow_batches_of(self, most: Exact | None) -> None:
        """Let a take remove as much as a handler may get, and not count as used."""
        if most is not None:
            self._uncounted = max(self._uncounted, most)
            if self.most_taken is not None:
                self.most_taken = max(self.most_taken, most)

    @property
    def used(self) -> Exact:
        return self.waiting + self.reserved + self.surplus

    @property
    def surplus(self) -> Exact:
        """What handlers hold above the one batch that takes no room."""
        if self.in_hands <= self._uncounted:
            return 0
        return max(0, self.in_hands - max(self._uncounted, self.largest))

    @property
    def first(self) -> SizedPartition[Any] | None:
        """The partition whose producer is next."""
        while self._line:
            number, index = self._line[0]
            partition = self._partitions[index]
            if self._places.get(index) == number == partition.lacks_room:
                return partition
            heappop(self._line)
            if self._places.get(index) == number:
                del self._places[index]
                self.stand_in_line(partition)
        return None

    def is_open_to(self, partition: SizedPartition[Any]) -> bool:
        """Whether no producer of another partition is before it."""
        if not self._line:
            return True
        first = self.first
        return first is None or first is partition

    def stand_in_line(self, partition: SizedPartition[Any]) -> None:
        """Note the partition's next producer, if he lacks nothing but room."""
        number, index = partition.lacks_room, partition.index
        if number is not None and self._places.get(index) != number:
            self._places[index] = number
            heappush(self._line, (number, index))

    def fitting(self, sizes: Iterable[Exact]) -> tuple[int, Exact]:
        """Return how many items, from the first one on, fit in now; and their size."""
        free, fit = self.capacity - self.used, 0
        total: Exact = 0
        for size in sizes:
            if total + size > free:
                self.is_short = True
                break
            fit += 1
            total += size
        return fit, total

    def all_fitting(self, sizes: Iterable[Exact], most: int) -> list[int]:
        """Return the places of those that fit in now, each as if it came alone."""
        free: Exact | float = self.capacity - self.used
        places: list[int] = []
        for place, size in enumerate(sizes):
            if len(places) == most:
                break
            if size <= free:
                places.append(place)
                free -= size
        return places

    def refuses(self, size: Exact) -> bool:
        """Whether an item of this size does not fit in now; drain tasks hurry then."""
        if self.used + size <= self.capacity:
            return False
        self.is_short = True
        return True

    def would_hold(self, size: Exact, without: Exact) -> bool:
        """Whether an item would fit if so much left that waits now."""
        return self.used - without + size <= self.capacity

    def took(self) -> None:
        self.is_short = self._is_short_known = False

    def serve(self) -> None:
        """Something has changed: serve who waits, as far as the room goes."""
        while (first := self.first) is not None:
            number = first.lacks_room
            first.serve_line()
            if first.lacks_room == number:
                break
        if self.lookers:
            # Of a handler's calls that wait in one line only the last one need look: it
            # is served last.
            lookers = {each.place: each for each in self.lookers}
            for each in lookers.values():
                each.look_again()

    def end_linger(self) -> None:
        """Have what lingers taken, since its room is wanted. Called on the loop."""
        if self.is_short and not self._is_short_known:
            self._is_short_known = True
            for partition in self._partitions:
                if partition.items:
                    partition.tell_owner()

    def holders(self) -> list[SizedPartition[Any]]:
        """Return the partitions whose drain tasks may make room."""
        has_surplus = self.surplus > 0
        return [
            each
            for each in self._partitions
            if each.items
            or each.line.reserved
            or (has_surplus and each.accounts.in_flight)
        ]


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
        self._arrivals[waiter] = next(self._partition.budget.numbers)

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
        # All but what is reserved for the rest: struck, it may be done again.
        keeps = sum(self._granted(waiter)[count:])
        self._release(waiter, self._held.get(waiter, 0) - keeps)
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
        budget = self._partition.budget
        held, own = self._held.get(waiter, 0) - size, self.reserved_size - size
        in_all = budget.reserved - size
        # No call until all is changed.
        self._held[waiter] = held
        self.reserved_size, budget.reserved = own, in_all

    def _granted(self, waiter: Waiter) -> Sequence[Exact]:
        """Return the sizes of the items that he has slots for."""
        sizes = self._sizes[waiter]
        first = len(sizes) - waiter.wants
        return sizes[first : first + waiter.granted]

    def _lacking(self, waiter: Waiter, count: int) -> Sequence[Exact]:
        """Return the sizes of the next items that he has no slots for."""
        sizes = self._sizes[waiter]
        first = len(sizes) - waiter.wants + waiter.granted
        return sizes[first : first + count]

    def _forget(self, waiter: Waiter) -> None:
        self._sizes.pop(waiter, None)
        self._arrivals.pop(waiter, None)
        self._held.pop(waiter, None)
