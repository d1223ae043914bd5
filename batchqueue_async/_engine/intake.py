"""The way in: refuse, place, or wait in line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from batchqueue_async._engine.chunks import LENGTH
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
        return await self._put_rest(partition, (item,)) == 1

    def put_whole(self, chunk: list[T]) -> bool:
        """Accept a chunk in one go, if it is for one partition and meets no edge."""
        partition = self._sole
        if partition is None:
            return self._put_routed(chunk)
        items = partition.items
        count, more = len(items), len(chunk)
        if count > partition.limit - more:
            return False
        if more < WORTH_A_LOOK or count != partition.alike:
            items.extend(chunk)
            return True
        is_alike = have_type(chunk, type(items[0]))
        if len(items) != count:
            # A `__del__`, a signal handler or a metaclass put something in.
            return False
        items.extend(chunk)
        # Nor has anything come since.
        if is_alike and len(items) == count + more:
            partition.alike = count + more
        return True

    def _put_routed(self, chunk: list[T]) -> bool:
        partition = self._placement.routes.get(type(chunk[0])) if chunk else None
        if partition is None or len(partition.items) > partition.limit - len(chunk):
            # Do not look at all the types for nothing.
            return False
        if not have_one_type(chunk):
            return False
        items = partition.items
        if len(items) > partition.limit - len(chunk):
            return False
        items.extend(chunk)
        return True

    async def put_many(self, chunk: Sequence[T]) -> int:
        """Accept a chunk; returns how many were accepted.

        What has room is placed at once; then partition by partition has to wait.
        """
        if self._sole is not None:
            accepted = self._offer(self._sole, chunk)
            if accepted == len(chunk):
                return accepted
            return accepted + await self._put_rest(self._sole, chunk[accepted:])
        accepted, rest = self._place(chunk)
        for partition, run in rest:
            accepted += await self._put_rest(partition, run)
        return accepted

    def _place(self, chunk: Sequence[T]) -> tuple[int, list[Run[T]]]:
        """Place what there is room for; returns how many, and the rest by partition."""
        if not chunk:
            return 0, []
        sole = sole_partition(chunk, self._placement)
        if sole is not None:
            return self._place_run(sole, chunk)
        if self._placement.first.is_shared():
            # Each placing takes the guard, so the fewest are the cheapest.
            return self._place_bins(sorted_bins(chunk, self._placement), None)
        if self._sorter is None or not self._sorter.suits(chunk):
            return self._place_each(chunk)
        is_empty = False
        try:
            placed = self._place_bins(self._sorter.sort(chunk), self._sorter)
            is_empty = True
        finally:
            self._sorter.end(is_empty=is_empty)
        return placed

    def _place_run(
        self, partition: Partition[T], run: Sequence[T]
    ) -> tuple[int, list[Run[T]]]:
        if partition.begin(run):
            self._lifecycle.notice(partition)
            return len(run), []
        placed = self._offer(partition, run)
        return placed, [(partition, run[placed:])] if placed < len(run) else []

    def _place_bins(
        self, bins: Iterable[Bin[T]], sorter: Sorter[T] | None
    ) -> tuple[int, list[Run[T]]]:
        """Place what there is room for; lists are emptied, or the partition's own."""
        accepted = 0
        rest: list[Run[T]] = []
        begun: list[Partition[T]] = []
        due: list[Partition[T]] = []
        for own in bins:
            partition, run = own.partition, own.run
            count = len(run)
            if len(partition.items) <= partition.limit - count:
                # As in the hot path for one item: no edge is met.
                partition.items.extend(run)
                accepted += count
                # Here and now: its items are in the processor's caches.
                run.clear()
            elif count:
                if partition.begin(run, is_given=True):
                    if sorter is not None:
                        sorter.renew(own)
                    (begun if count < partition.due_size else due).append(partition)
                    accepted += count
                    continue
                placed = self._offer(partition, run)
                accepted += placed
                if placed < count:
                    rest.append((partition, run[placed:]))
                run.clear()
        self._lifecycle.notice_all(begun + due)
        return accepted, rest

    def _place_each(self, chunk: Sequence[T]) -> tuple[int, list[Run[T]]]:
        rest: dict[Partition[T], list[T]] = {}
        routes, of = self._placement.routes, self._placement.partition_of
        for item in chunk:
            partition = routes.get(type(item)) or of(item)
            items = partition.items
            if len(items) < partition.limit:
                items.append(item)
            elif not self._offer(partition, (item,)):
                # Full, so that its later items come here, too: none overtakes.
                rest.setdefault(partition, []).append(item)
        accepted = len(chunk) - sum(map(len, rest.values()))
        return accepted, list(rest.items())

    def refuse(self, chunk: Sequence[T]) -> None:
        """Count items that came after closing, where they would have gone."""
        for item in chunk:
            try:
                partition = self._placement.partition_of(item)
            except Exception:  # noqa: BLE001 - refused it is, whatever the selector says
                partition = self._placement.first
            partition.reject(1)

    def _offer(self, partition: Partition[T], chunk: Sequence[T]) -> int:
        placed = partition.offer(chunk)
        if placed:
            self._lifecycle.notice(partition)
        return placed

    async def _put_rest(self, partition: Partition[T], chunk: Sequence[T]) -> int:
        accepted = 0
        if self.waits and not partition.is_closed:
            accepted = await self._line.put(partition, chunk)
        if accepted < len(chunk):
            partition.reject(len(chunk) - accepted)
        return accepted

    def runs(self, chunk: Sequence[T]) -> Sequence[Run[T]]:
        """Sort a chunk by partition, on any thread that holds the guard."""
        return runs_of(chunk, self._placement)
