"""A partition whose items have sizes, for queues that bound batches or room by them.

Invariants, beside those of `Partition`:
* `sizes` has the size of each waiting item, in the same order.
* While `budget.is_changing`, nothing gets in anywhere: partitions have it in common.
* `limit` is 0: each item's size has to be asked for, so nothing gets in unasked.
* All that was taken counts as held by handlers until the last of it is settled.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, repeat
from operator import delitem
from typing import Any, TypeVar, cast

from batchqueue_async._engine.partitions.accounts import Accounts
from batchqueue_async._engine.partitions.byte_budget import (
    ByteBudget,
    Measured,
    one_measured,
)
from batchqueue_async._engine.partitions.item_types import WORTH_A_LOOK
from batchqueue_async._engine.partitions.rolling_partition import NEVER
from batchqueue_async._engine.partitions.sized_line import SizedLine
from batchqueue_async._engine.partitions.told_once import (
    ToldOncePartition,
    take_back,
)
from batchqueue_async._engine.partitions.wait_for_room import Tally
from batchqueue_async._engine.partitions.waiting_line import Waiter
from batchqueue_async._policies.errors import with_accepted
from batchqueue_async._policies.sizing import Exact

T = TypeVar("T")

_FEW = 256
"""Items that a take looks at first where only a part of what waits fits in."""


class SizedPartition(ToldOncePartition[T]):
    """A partition that counts in sizes, too, and shares its room with the others."""

    __slots__ = (
        "_coming_size",
        "_in_hands",
        "budget",
        "due_bytes",
        "open_size",
        "sizes",
        "waiting_size",
    )

    line: SizedLine
    has_sizes = True

    def __init__(self, budget: ByteBudget, *args: Any) -> None:  # noqa: ANN401 - the base's
        self.budget = budget
        super().__init__(*args)
        self.line = SizedLine(self)
        self.accounts = SizedAccounts(self)
        # As the items: a list, or a deque where the first ones go one by one.
        self.sizes: Any = type(self.items)()
        self.waiting_size: Exact = 0
        # From this size on a batch must not linger.
        self.due_bytes: Exact | float = math.inf
        # With `open_slots`: the size below which what waits here meets no edge.
        self.open_size: Exact | float = 0
        self._coming_size: Exact = 0
        self._in_hands: Exact = 0

    @property
    def lacks_room(self) -> int | None:
        """The number of its next producer, if that lacks nothing but room."""
        has_slots = len(self.items) + self.line.reserved < self._maxsize
        return self.line.next_number if has_slots and not self.is_closed else None

    @property
    def is_served_late(self) -> bool:  # type: ignore[override]
        return self.budget.is_serving

    def is_due(self, coming: int = 0) -> bool:
        if super().is_due(coming) or self.budget.is_short:
            return True
        size = self.waiting_size + self.line.reserved_size + self._coming_size
        return size >= self.due_bytes

    def announce(self, chunk: Measured[T]) -> None:
        """Tell the owner of items that come: as `notify`, but with their size."""
        self._coming_size = sum(chunk.sizes)
        try:
            self.notify(len(chunk))
        finally:
            self._coming_size = 0

    def _tell(self, coming: int, *, may_run: bool) -> None:
        super()._tell(coming, may_run=may_run)
        self.budget.tell_owners()

    def tell_owner(self) -> None:
        """Have its drain task look whether a batch is due."""
        super()._tell(0, may_run=False)

    def _put_between_edges(self, chunk: Sequence[T], tally: Tally | None) -> bool:
        if len(chunk) >= WORTH_A_LOOK:
            return False
        sizes = cast("Measured[T]", chunk).sizes
        return self.put_measured(chunk, sizes, sum(sizes), tally)

    def put_one(self, item: T, size: int) -> bool:
        """Accept an item by the last look at the edges; returns whether it is in.

        The caller holds the guard. Items of bounded sizes come alone mostly, and nearly
        all of them this way.
        """
        one, its_size, budget = (item,), (size,), self.budget
        items: Any = self.items
        sizes: Any = self.sizes
        # No call from here on.
        if self.open_slots > 0 and not (self.is_changing or budget.is_changing):
            waiting, waiting_in_all = self.waiting_size + size, budget.waiting + size
            if waiting < self.open_size and waiting_in_all <= budget.open_to:
                try:
                    sizes += its_size
                    items += one
                except MemoryError:
                    take_back(sizes, len(items))
                    raise
                self.waiting_size, budget.waiting = waiting, waiting_in_all
                self.open_slots -= 1
                return True
        return False

    def put_anywhere(self, item: T, size: Exact) -> bool:
        """Accept an item that meets no edge, on any thread; returns if it is in."""
        is_in = False
        try:
            with self.guard:
                is_in = type(size) is int and self.put_one(item, size)
                is_in = is_in or self.put_measured((item,), (size,), size)
        except BaseException as error:
            with_accepted(error, int(is_in))
            raise
        return is_in

    def put_measured(
        self,
        chunk: Sequence[T],
        its_sizes: Sequence[Exact],
        size: Exact,
        tally: Tally | None = None,
    ) -> bool:
        """Accept a chunk that meets no edge; the caller holds the guard.

        Its items have these sizes, `size` together. Returns whether all of it is in.
        """
        budget: ByteBudget = self.budget
        if self.is_changing or budget.is_changing:
            return False
        self.is_changing = budget.is_changing = True
        try:
            items: Any = self.items
            sizes: Any = self.sizes
            before, waiting = self.waiting_size, self.waiting_size + size
            waiting_in_all = budget.waiting + size
            count, more = len(items), len(chunk)
            if (
                not self._is_between_edges(more)
                or count < self.due_size <= count + more
                or before < self.due_bytes <= waiting
                or not budget.has_room_at_once(waiting_in_all)
            ):
                return False
            self._open_up(count + more, waiting)
            # No call from here on: all of this is done, or nothing.
            try:
                sizes += its_sizes
                items += chunk
            except MemoryError:
                take_back(items, count)
                take_back(sizes, count)
                raise
            self.waiting_size, budget.waiting = waiting, waiting_in_all
            if tally is not None:
                tally.count += more
        finally:
            self.is_changing = budget.is_changing = False
        return True

    def _open_up(self, count: int, waiting: Exact) -> None:
        """Note how far it is to the next edges from where so many items wait."""
        edge = self.due_size - 1 if count < self.due_size else self._maxsize
        self.open_size = self.due_bytes if waiting < self.due_bytes else math.inf
        # Fractions are added, and compared, by calls.
        is_plain = type(waiting) is int and type(self.open_size) in (int, float)
        # Nor by a deque, whose iterator may have garbage collected.
        is_plain = is_plain and type(self.items) is list
        self.open_slots = edge - count if is_plain else 0

    def wait_in_line(self, waiter: Waiter, chunk: Sequence[T] = ()) -> None:
        with self.guard:
            self.line.expect(waiter, cast("Measured[T]", chunk).sizes)
            super().wait_in_line(waiter, chunk)

    def leave_line(self, waiter: Waiter) -> None:
        if waiter.wants:
            with self.guard:
                super().leave_line(waiter)
                self.budget.serve()

    def take(self, most: int | None) -> list[T]:
        try:
            with self.guard:
                taken = super().take(self._in_one_take(most))
                self.budget.serve()
        finally:
            # Producers that got a slot may lack bytes now, which lingering items hold.
            self.budget.tell_owners()
        return taken

    def take_rest(self, left: list[T]) -> None:
        super().take_rest(left)
        self.let_go()

    def let_go(self) -> None:
        """Release the room of the last take: all of it is settled."""
        budget = self.budget
        try:
            with self.guard:
                budget.in_hands -= self._in_hands
                # No call in between.
                self._in_hands = 0
                if not budget.in_hands:
                    budget.largest = 0
                budget.serve()
        finally:
            budget.tell_owners()

    def sizes_without(self, index: int) -> tuple[Exact, Exact]:
        """Return what would wait here, and in all, without the item at `index`."""
        size = self.sizes[index]
        return self.waiting_size - size, self.budget.waiting - size

    def abandon(self) -> None:
        super().abandon()
        self.line = SizedLine(self)
        self.sizes.clear()
        self.budget.waiting = self.budget.reserved = self.budget.in_hands = 0

    def chunk_of(self, item: T) -> Measured[T]:
        return one_measured(item, self.budget.measure(item))

    def _accept(self, chunk: Sequence[T], displaced: list[T]) -> int:
        budget = self.budget
        if budget.is_changing:
            return 0
        budget.is_changing = True
        try:
            return self._accept_fitting(chunk, displaced)
        finally:
            budget.is_changing = False

    def _accept_fitting(self, chunk: Sequence[T], displaced: list[T]) -> int:
        if not self.budget.is_open_to(self):
            return 0
        free = self._maxsize - len(self.items)
        known = cast("Measured[T]", chunk)
        fit, _ = self.budget.fitting(known.sizes[:free])
        if fit < min(len(chunk), free) and self.budget.passes_over:
            # With a policy that never waits, only the number of refused items is told,
            # and not which: so smaller ones may pass larger ones.
            known = known.of(self.budget.all_fitting(known.sizes, free))
            fit = len(known)
        if fit:
            self._append(known if fit == len(known) else known[:fit])
        return fit

    def _append(self, chunk: Sequence[T]) -> None:
        sizes, budget = cast("Measured[T]", chunk).sizes, self.budget
        size, before = sum(sizes), len(self.items)
        was_changing, budget.is_changing = budget.is_changing, True
        self.open_slots, budget.open_to = 0, -1
        try:
            # Summed first: fractions are added by calls, and none may come in between.
            known, known_in_all = self.waiting_size, budget.waiting
            waiting, waiting_in_all = known + size, known_in_all + size
            # Before the items are in, since no call may follow that, either.
            self.waiting_size, budget.waiting = waiting, waiting_in_all
            try:
                self.sizes.extend(sizes)
                super()._append(chunk)
            except BaseException:
                # Ctrl-C: all of them are in, or none.
                if len(self.items) == before:
                    self.waiting_size, budget.waiting = known, known_in_all
                while len(self.sizes) > len(self.items):
                    self.sizes.pop()
                raise
        finally:
            budget.is_changing = was_changing

    def _fill_from_line(self) -> None:
        budget = self.budget
        was_changing, budget.is_changing = budget.is_changing, True
        try:
            super()._fill_from_line()
        finally:
            budget.is_changing = was_changing

    def _in_one_take(self, most: int | None) -> int | None:
        """Return how many items a take removes: one at least."""
        bound, count, window = self.budget.most_taken, len(self.sizes), _FEW
        if bound is None:
            return most
        if self.waiting_size > bound:
            # Far more may wait than a take removes.
            ends = self._ends(window)
            while window < count and ends[-1] <= bound:
                window *= 2
                ends = self._ends(window)
            count = max(1, bisect_right(ends, bound))
        return count if most is None else min(most, count)

    def _ends(self, count: int) -> list[Exact]:
        """Return the sums of sizes up to each of the first items, so many."""
        # Copied first: fractions are added by calls.
        return [*accumulate([*islice(self.sizes, count)])]

    def _remove(self, most: int | None) -> list[T]:
        # While items and sizes move, a `__del__` or a signal handler must put nothing
        # in: its size would be taken for that of another item.
        budget = self.budget
        self.is_changing = budget.is_changing = True
        self.open_slots, budget.open_to = 0, -1
        try:
            waiting = len(self.items)
            count = waiting if most is None else min(most, waiting)
            taken = Measured(islice(self.items, count), islice(self.sizes, count))
            size, largest = sum(taken.sizes), max(taken.sizes, default=0)
            largest = max(largest, budget.largest)
            sizes: Any = self.sizes
            removals: Iterator[object] = iter(())
            if is_deque := isinstance(sizes, deque):
                removals = map(delitem, repeat(sizes, count), repeat(0))
            waits, in_hands = self.waiting_size - size, self._in_hands + size
            waits_in_all, all_in_hands = budget.waiting - size, budget.in_hands + size
            budget.took()
            super()._remove(most)
            # No call from here on; see `cut_off`.
            if is_deque:
                _ = NEVER in removals
            else:
                del sizes[:count]
            self.taken = taken
            # Together, so that used room cannot grow: items become surplus at most.
            self.waiting_size, budget.waiting = waits, waits_in_all
            self._in_hands, budget.in_hands = in_hands, all_in_hands
            budget.largest = largest
        finally:
            self.is_changing = budget.is_changing = False
        return taken

    def _set_limits(self) -> None:
        self.has_fast_path = False
        self.open_slots = 0
        self.limit = self.guarded_limit = 0


class SizedAccounts(Accounts):
    """Tells its partition when all that was taken from it is settled."""

    lets_go = True

    __slots__ = ("_partition",)

    def __init__(self, partition: SizedPartition[Any]) -> None:
        super().__init__()
        self._partition = partition

    def tell_watchers(self) -> None:
        if not self.in_flight:
            self._partition.let_go()
        super().tell_watchers()
