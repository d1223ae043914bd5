"""Items with their sizes, and the room for them that all partitions of a queue share.

Invariants:
* `used <= capacity`, at every moment: what waits, what is reserved for producers that
  have not put it in yet, and what handlers hold above one batch.
* While a producer waits for room here, no producer that came later gets any, in
  whichever partition: producers that lack nothing but room are served in order of
  arrival. One whose partition has no slot left holds up none of other partitions.
* All changes hold the partitions' guard, which is one for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from batchqueue_async._policies.choices import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.sizing import Exact, exact, length_of, measured_by

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.deadlock_detector import BudgetWait
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
        """Append an item and its size; if this is struck in the middle, neither."""
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

    Items before the error are accepted, as if their iterable had raised midway.
    """
    items, sizes = [*chunk], list[Exact]()
    error: Exception | None = None
    try:
        for item in items:
            sizes.append(measure(item))
    except Exception as raised:  # noqa: BLE001 - for the caller to raise
        error = raised
        del items[len(sizes) :]
    return Measured(items, sizes), error


def one_measured(item: T, size: Exact) -> Measured[T]:
    # Without `__init__`, which takes longer than all the rest.
    one: Measured[T] = Measured.__new__(Measured)
    one.append(item)
    one.sizes = [size]
    return one


# One batch of what handlers hold does not count as used room. If batches are not
# bounded by size, one batch is the capacity divided by this.
_ROOM_PER_UNCOUNTED_BATCH = 8


class ByteBudget:
    """The room that a queue's items may take together, by their sizes (bytes, mostly).

    Every change is a plain method, as in the partitions.
    """

    def __init__(
        self, config: BatchQueueConfig[Any], partitions: Sequence[SizedPartition[Any]]
    ) -> None:
        declared = config.buffer_bytes
        most = None if declared is None else exact(declared)
        self.capacity: Exact | float = math.inf if most is None else most
        self.size_of = config.size_of or length_of
        self.measure = measured_by(self.size_of, self.capacity)
        # The size that a take removes at most; a larger item is taken alone.
        largest = config.max_batch_bytes
        self.most_taken = None if largest is None else exact(largest)
        # Whether items may pass one before them in their chunk that does not fit.
        self.passes_over = config.when_full is not WhenFull.WAIT
        # How much of what handlers hold does not count as used room.
        self._uncounted: Exact = (most or 0) // _ROOM_PER_UNCOUNTED_BATCH
        self.allow_batches_of(self.most_taken)
        self._partitions = partitions
        self.waiting: Exact = 0
        self.reserved: Exact = 0
        # The size of taken, unsettled items; and the largest since there were none.
        self.in_hands: Exact = 0
        self.largest: Exact = 0
        # As a partition's `is_changing`, for all partitions together.
        self.is_changing = False
        # Up to which size items may wait, as of the last look: see `open_slots` of the
        # partitions. Whatever takes of that but such items sets it to -1.
        self.open_to: Exact | float = -1
        # Arrivals are numbered. The line is a heap of each partition's first producer,
        # if that lacks nothing but room; outdated places in it are passed over.
        self.numbers = count()
        self._line: list[tuple[int, int]] = []
        self._places: dict[int, int] = {}
        # Whether an item did not fit since the last take, and whether all drain tasks
        # know that: nothing may linger then.
        self.is_short = self._is_short_known = False
        # Whether room is given out that others made: the cycle that did may be about to
        # take here, so producers on the loop place their own.
        self.is_serving = False
        # Partitions whose producers were served, and whose owners have to be told.
        self._served: dict[SizedPartition[Any], None] = {}
        # Handlers' waits: at each change they look whether room can still be made.
        self.waits_to_check: dict[BudgetWait, None] = {}

    def allow_batches_of(self, most: Exact | None) -> None:
        """Let a take remove, without counting as used, what a handler may get."""
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
        """Whether no producer of another partition is next in line for room."""
        if not self._line:
            return True
        first = self.first
        return first is None or first is partition

    def has_room_at_once(self, waiting: Exact) -> bool:
        """Whether so much may wait in all, and no producer waits for room."""
        if self._line:
            return False
        most = self.capacity - self.reserved - self.surplus
        # Fractions are added, and compared, by calls.
        is_plain = type(waiting) is int and type(most) in (int, float)
        self.open_to = most if is_plain else -1
        return waiting <= most

    def stand_in_line(self, partition: SizedPartition[Any]) -> None:
        """Put the partition's next producer in line, if it lacks nothing but room."""
        number, index = partition.lacks_room, partition.index
        if number is not None and self._places.get(index) != number:
            self.open_to = -1
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
        """Return the places of the items that fit in now, passing over the others."""
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
        """Whether an item of this size does not fit in now; notes the shortage."""
        if self.used + size <= self.capacity:
            return False
        self.is_short = True
        return True

    def would_hold(self, size: Exact, without: Exact) -> bool:
        """Whether an item would fit in if waiting items of size `without` left."""
        return self.used - without + size <= self.capacity

    def took(self) -> None:
        self.is_short = self._is_short_known = False

    def serve(self) -> None:
        """Serve waiting producers after a change, as far as the room goes."""
        while (first := self.first) is not None:
            number, self.is_serving = first.lacks_room, True
            try:
                first.serve_line()
            finally:
                self.is_serving = False
                # Producers on threads have their items placed by it. Noted after that:
                # the loop may tell the owner meanwhile, which would look too early.
                self._served[first] = None
            if first.lacks_room == number:
                break
        if self.waits_to_check:
            # Of one call's waits in one line the last one looks, which is served last.
            for each in {each.place: each for each in self.waits_to_check}.values():
                each.look_again()

    def tell_owners(self) -> None:
        """Wake drain tasks for a change in another partition. Called on the loop.

        Those of partitions whose producers got in, as room was made elsewhere; and if
        room is short, those that let items linger.
        """
        # A copy: threads may note others meanwhile.
        for partition in list(self._served):
            # No call before the `try`, so that whatever strikes, it is told later.
            del self._served[partition]
            try:
                partition.tell_owner()
            except BaseException:
                self._served[partition] = None
                raise
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
