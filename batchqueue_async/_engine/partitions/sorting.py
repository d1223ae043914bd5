"""Sorts a chunk of items by partition, keeping the order within each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from batchqueue_async._engine.partitions.item_types import have_one_type
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import SelectorPlacement, TypePlacement

T = TypeVar("T")

Placement: TypeAlias = TypePlacement[T] | SelectorPlacement[T]
Run: TypeAlias = tuple[Partition[T], Sequence[T]]


class Bin(Generic[T]):
    """What of a chunk goes to one partition, and of which types that may be."""

    __slots__ = ("partition", "run", "types")

    def __init__(self, partition: Partition[T]) -> None:
        self.partition = partition
        self.run: list[T] = []
        self.types: tuple[type, ...] = ()


def sole_partition(chunk: Sequence[T], placement: Placement[T]) -> Partition[T] | None:
    """Return the partition of the whole chunk, if that is seen without sorting it."""
    sole = placement.sole
    if sole is None and have_one_type(chunk):
        return placement.routes.get(type(chunk[0]))
    return sole


def runs_of(chunk: Sequence[T], placement: Placement[T]) -> Sequence[Run[T]]:
    """Return a chunk's items by partition; on any thread that holds the guard."""
    if not chunk:
        return []
    sole = sole_partition(chunk, placement)
    if sole is not None:
        return [(sole, chunk)]
    return [(each.partition, each.run) for each in sorted_bins(chunk, placement)]


def sorted_bins(chunk: Sequence[T], placement: Placement[T]) -> Sequence[Bin[T]]:
    """Do the same for what is known to need sorting."""
    bins: dict[Partition[T], Bin[T]] = {}
    by_type: dict[type, list[T]] = {}
    routes, of = placement.routes, placement.partition_of
    for item in chunk:
        run = by_type.get(type(item))
        if run is None:
            partition = of(item)
            run = _bin_of(partition, bins).run
            if routes.get(type(item)) is partition:
                by_type[type(item)] = run
        run.append(item)
    return list(bins.values())


def _bin_of(partition: Partition[T], bins: dict[Partition[T], Bin[T]]) -> Bin[T]:
    own = bins.get(partition)
    if own is None:
        own = bins[partition] = Bin(partition)
    return own


class Sorter(Generic[T]):
    """Sorts chunk after chunk into lists that it keeps: for types on one loop.

    Half of the price of `sorted_bins` with many types is for dicts and lists, which
    are always the same. Empty the runs of one `sort`, or `renew` them, then `end` it.
    """

    __slots__ = (
        "_bins",
        "_by_type",
        "_evictions",
        "_is_in_use",
        "_placement",
    )

    def __init__(self, placement: TypePlacement[T]) -> None:
        self._placement = placement
        self._by_type: dict[type, list[T]] = {}
        self._bins: dict[Partition[T], Bin[T]] = {}
        self._is_in_use = False
        # Of the placement, when it was last empty.
        self._evictions = placement.placed.evictions

    def suits(self, chunk: Sequence[T]) -> bool:
        """Whether sorting is cheaper than placing the items one by one.

        Measured: it is from about five items per partition on. It is in use only where
        a `__del__` or a signal handler calls in the middle of another chunk.
        """
        return not self._is_in_use and len(chunk) >= 5 * len(self._bins)

    def sort(self, chunk: Sequence[T]) -> Iterable[Bin[T]]:
        """Return the chunk's items by partition, also of those that get none."""
        self._is_in_use = True
        by_type = self._by_type
        items = iter(chunk)
        while True:
            try:
                for item in items:
                    by_type[type(item)].append(item)
            except KeyError:
                self._learn(item)
                by_type[type(item)].append(item)
            else:
                return self._bins.values()

    def renew(self, own: Bin[T]) -> None:
        """Give a bin's run away: sort into another list from now on."""
        run: list[T] = []
        own.run = run
        for item_type in own.types:
            self._by_type[item_type] = run

    def end(self, *, is_empty: bool) -> None:
        """Be ready for the next chunk; after an error forget what it has left."""
        if not is_empty or self._evictions != self._placement.placed.evictions:
            # Not emptied: a run may be a partition's own list already.
            self._by_type.clear()
            self._bins.clear()
            self._evictions = self._placement.placed.evictions
        self._is_in_use = False

    def _learn(self, item: T) -> None:
        partition = self._placement.partition_of(item)
        own = _bin_of(partition, self._bins)
        own.types += (type(item),)
        self._by_type[type(item)] = own.run
