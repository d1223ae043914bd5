"""The way in: refuse, place, or wait in line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import length_hint
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.chunks import LENGTH, Tally
from batchqueue_async._engine.in_line import InLine
from batchqueue_async._engine.lifecycle import Lifecycle
from batchqueue_async._engine.one_type import WORTH_A_LOOK, have_one_type, have_type
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.placement import TypePlacement
from batchqueue_async._engine.sorting import (
    Bin,
    Placement,
    Run,
    Sorter,
    runs_of,
    sole_partition,
    sorted_bins,
)
from batchqueue_async._policies.buffering import WhenFull
from batchqueue_async._policies.errors import with_accepted

T = TypeVar("T")


class Intake(Generic[T]):
    """Everything about accepting items but the hot path, which `BatchQueue` inlines."""

    __slots__ = (
        "_lifecycle",
        "_line",
        "_placement",
        "_sole",
        "_sorter",
        "waits",
    )

    def __init__(
        self,
        placement: Placement[T],
        when_full: WhenFull,
        lifecycle: Lifecycle[T],
    ) -> None:
        self._placement = placement
        self._sole = placement.sole
        # For the loop's own chunks: nobody else may use its lists.
        self._sorter: Sorter[T] | None = None
        if isinstance(placement, TypePlacement) and self._sole is None:
            self._sorter = Sorter(placement)
        self.waits = when_full is WhenFull.WAIT
        self._lifecycle = lifecycle
        self._line = InLine(lifecycle)

    @property
    def chunk_length(self) -> int:
        """How many items of a long iterable are sorted together.

        With thousands of partitions it takes more of them to make sorting worthwhile.
        """
        return max(LENGTH, 128 * len(self._placement.partitions))

    def put_now(self, item: T) -> bool:
        """Accept the item if there is room at once; else it counts as rejected."""
        partition = self._placement.partition_of(item)
        if partition.is_shared() and partition.append(item):
            return True
        if self._offer(partition, (item,)):
            return True
        partition.reject(1)
        return False

    async def put(self, item: T) -> bool:
        """Accept the item, waiting in line for room where that is the policy."""
        partition = self._placement.partition_of(item)
        if partition.is_shared() and partition.append(item):
            return True
        if self._offer(partition, (item,)):
            return True
        placed = Tally()
        await self._put_rest(partition, (item,), placed)
        return placed.count == 1

    def put_whole(self, chunk: list[T]) -> bool:
        """Accept a chunk in one go, if it is for one partition and meets no edge."""
        partition = self._sole
        if partition is None:
            return self._put_routed(chunk)
        items = partition.items
        count, more = len(items), len(chunk)
        if count > partition.limit - more:
            return False
        is_alike = False
        try:
            if more >= WORTH_A_LOOK and count == partition.alike:
                is_alike = have_type(chunk, type(items[0]))
                if len(items) != count:
                    # A `__del__`, a signal handler or a metaclass put something in.
                    return False
            items.extend(chunk)
            # Nor has anything come since.
            if is_alike and len(items) == count + more:
                partition.alike = count + more
        except BaseException as error:
            # A signal handler's. The look at types may have let something in, too.
            with_accepted(error, more if len(items) >= count + more else 0)
            raise
        return True

    def _put_routed(self, chunk: list[T]) -> bool:
        partition = self._placement.routes.get(type(chunk[0])) if chunk else None
        if partition is None or len(partition.items) > partition.limit - len(chunk):
            # Do not look at all the types for nothing.
            return False
        if not have_one_type(chunk):
            return False
        items = partition.items
        count, more = len(items), len(chunk)
        if count > partition.limit - more:
            return False
        try:
            items.extend(chunk)
        except BaseException as error:
            with_accepted(error, more if len(items) >= count + more else 0)
            raise
        return True

    async def put_many(self, chunk: Sequence[T], placed: Tally) -> None:
        """Accept a chunk, and count what was accepted.

        What has room is placed at once; then partition by partition has to wait.
        """
        for partition, run in self._place(chunk, placed):
            await self._put_rest(partition, run, placed)

    def _place(self, chunk: Sequence[T], placed: Tally) -> list[Run[T]]:
        """Place what there is room for; returns the rest by partition."""
        if not chunk:
            return []
        sole = self._sole or sole_partition(chunk, self._placement)
        if sole is not None:
            return self._place_run(sole, chunk, placed)
        if self._placement.first.is_shared():
            # Each placing takes the guard, so the fewest are the cheapest.
            bins = sorted_bins(chunk, self._placement)
            return self._place_bins(bins, None, placed)
        if self._sorter is None or not self._sorter.suits(chunk):
            return self._place_each(chunk, placed)
        is_empty = False
        try:
            rest = self._place_bins(self._sorter.sort(chunk), self._sorter, placed)
            is_empty = True
        finally:
            self._sorter.end(is_empty=is_empty)
        return rest

    def _place_run(
        self, partition: Partition[T], run: Sequence[T], placed: Tally
    ) -> list[Run[T]]:
        count = 0
        if partition.has_room:
            self._lifecycle.notice(partition, len(run))
            # What a sole partition gets is looked at for its types when it comes.
            if partition is not self._sole and partition.begin(run, placed):
                return []
            count = self._accept(partition, run, placed)
        return [(partition, run[count:])] if count < len(run) else []

    def _place_bins(
        self, bins: Iterable[Bin[T]], sorter: Sorter[T] | None, placed: Tally
    ) -> list[Run[T]]:
        """Place what there is room for; lists are emptied, or the partition's own."""
        rest: list[Run[T]] = []
        is_expected = is_due = False
        for own in bins:
            partition, run = own.partition, own.run
            count = len(run)
            if len(partition.items) <= partition.limit - count:
                # As in the hot path for one item: no edge is met.
                items: Any = partition.items
                items += run
                placed.count += count
                # Here and now: its items are in the processor's caches.
                run.clear()
            elif count:
                # Once for all that come to empty partitions, and before they do.
                if not is_expected or (count >= partition.due_size and not is_due):
                    is_expected, is_due = True, count >= partition.due_size
                    self._lifecycle.expect(is_due=is_due)
                if partition.begin(run, placed, is_given=True):
                    if sorter is not None:
                        sorter.renew(own)
                    continue
                offered = self._offer(partition, run, placed)
                if offered < count:
                    rest.append((partition, run[offered:]))
                run.clear()
        return rest

    def _place_each(self, chunk: Sequence[T], placed: Tally) -> list[Run[T]]:
        rest: dict[Partition[T], list[T]] = {}
        routes, of = self._placement.routes, self._placement.partition_of
        items_left = iter(chunk)
        begun = len(chunk)
        try:
            for item in items_left:
                partition = routes.get(type(item)) or of(item)
                items = partition.items
                if len(items) < partition.limit:
                    items.append(item)
                elif not self._offer(partition, (item,)):
                    # Full, so that its later items come here, too: none overtakes.
                    rest.setdefault(partition, []).append(item)
        except BaseException:
            # Not the one at which it struck.
            begun -= length_hint(items_left) + 1
            raise
        finally:
            placed.count += begun - sum(map(len, rest.values()))
        return list(rest.items())

    def refuse(self, chunk: Sequence[T]) -> None:
        """Count items that came after closing, where they would have gone."""
        for item in chunk:
            try:
                partition = self._placement.partition_of(item)
            except Exception:  # noqa: BLE001 - refused it is, whatever the selector says
                partition = self._placement.first
            partition.reject(1)

    def _offer(
        self, partition: Partition[T], chunk: Sequence[T], placed: Tally | None = None
    ) -> int:
        if not partition.has_room:
            return 0
        # Before it is accepted: what is raised in between strikes a producer whose item
        # is not in, and never leaves one behind that nobody was told of.
        self._lifecycle.notice(partition, len(chunk))
        if placed is None:
            return partition.offer(chunk)
        return self._accept(partition, chunk, placed)

    @staticmethod
    def _accept(partition: Partition[T], chunk: Sequence[T], placed: Tally) -> int:
        try:
            count = partition.offer(chunk)
        except BaseException as error:
            # Struck in the middle: the partition knows how many are in.
            placed.count += getattr(error, "accepted", 0)
            raise
        placed.count += count
        return count

    async def _put_rest(
        self, partition: Partition[T], chunk: Sequence[T], placed: Tally
    ) -> None:
        before = placed.count
        if self.waits and not partition.is_closed:
            await self._line.put(partition, chunk, placed)
        accepted = placed.count - before
        if accepted < len(chunk):
            partition.reject(len(chunk) - accepted)

    def runs(self, chunk: Sequence[T]) -> Sequence[Run[T]]:
        """Sort a chunk by partition, on any thread that holds the guard."""
        return runs_of(chunk, self._placement)
