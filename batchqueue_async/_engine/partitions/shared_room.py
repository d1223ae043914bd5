"""Room that all partitions of a queue share, counted in the sizes of items.

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
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from batchqueue_async._policies.buffering import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.sizing import Exact, exact, measured_by

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.shared_room_wait import SharedRoomWait
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition

# What handlers hold is not counted up to one batch. Where no batch is bounded by size,
# that is the room divided by this.
_ROOM_PER_UNCOUNTED_BATCH = 8


class Room:
    """One queue's room. Every change is a plain method, as in the partitions."""

    __slots__ = (
        "_is_short_known",
        "_line",
        "_partitions",
        "_places",
        "_uncounted",
        "capacity",
        "in_hands",
        "is_changing",
        "is_short",
        "largest",
        "lookers",
        "measure",
        "most_taken",
        "numbers",
        "passes_over",
        "reserved",
        "waiting",
    )

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
        self.lookers: dict[SharedRoomWait, None] = {}

    def allow_batches_of(self, most: Exact | None) -> None:
        """Let a take remove as much as a handler may get, and not count as used."""
        if most is not None:
            self._uncounted = max(self._uncounted, most)
            if self.most_taken is not None:
                self.most_taken = max(self.most_taken, most)

    @property
    def used(self) -> Exact:
        """How much of the capacity is taken."""
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

    def lacks(self, size: Exact) -> bool:
        """Whether an item of this size does not fit in now."""
        if self.used + size <= self.capacity:
            return False
        self.is_short = True
        return True

    def would_hold(self, size: Exact, without: Exact) -> bool:
        """Whether an item would fit if so much left that waits now."""
        return self.used - without + size <= self.capacity

    def took(self) -> None:
        """A partition is taken from."""
        self.is_short = self._is_short_known = False

    def serve(self) -> None:
        """Something has changed: serve who waits, as far as the room goes."""
        while (first := self.first) is not None:
            number = first.lacks_room
            first.serve_line()
            if first.lacks_room == number:
                break
        if self.lookers:
            # Of a handler's calls that wait in one line the last is served last.
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
