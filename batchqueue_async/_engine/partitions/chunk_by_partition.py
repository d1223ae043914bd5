"""Sorts a chunk of items by partition, keeping the order within each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from batchqueue_async._engine.partitions.item_types import have_one_type
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import SelectorPlacement, TypePlacement

Placement: TypeAlias = TypePlacement | SelectorPlacement
Run: TypeAlias = tuple[Partition[Any], Sequence[Any]]


_ASKED_AT_ONCE: Final = 16
"""Items that a selector is asked about under one guard.

For each item alone the guard costs as much as the answer; under one for the whole
chunk a slow selector would hold up the loop, which asks it, too.
"""


class Bin:
    """The items of a chunk for one partition, and the types that are sorted into it."""

    __slots__ = ("partition", "run", "types")

    def __init__(self, partition: Partition[Any]) -> None:
        self.partition = partition
        self.run: list[Any] = []
        self.types: tuple[type, ...] = ()


def sole_partition(chunk: Sequence[Any], placement: Placement) -> Partition[Any] | None:
    """Return the partition of the whole chunk, if that is seen without sorting it."""
    sole = placement.sole
    if sole is None and have_one_type(chunk):
        return placement.routes.get(type(chunk[0]))
    return sole


def runs_of(chunk: Sequence[Any], placement: Placement) -> Sequence[Run]:
    """Return a chunk's items by partition; on any thread."""
    if not chunk:
        return []
    sole = sole_partition(chunk, placement)
    if sole is not None:
        return [(sole, chunk)]
    return [(each.partition, each.run) for each in sorted_bins(chunk, placement)]


def sorted_bins(chunk: Sequence[Any], placement: Placement) -> Sequence[Bin]:
    """Do the same for a chunk that needs sorting."""
    if isinstance(placement, SelectorPlacement):
        return _selected_bins(chunk, placement)
    bins: dict[Partition[Any], Bin] = {}
    by_type: dict[type, list[Any]] = {}
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


def _selected_bins(chunk: Sequence[Any], placement: SelectorPlacement) -> list[Bin]:
    bins: dict[Partition[Any], Bin] = {}
    choose = placement.choose
    for start in range(0, len(chunk), _ASKED_AT_ONCE):
        asked = chunk[start : start + _ASKED_AT_ONCE]
        with placement.guard:
            # Not by `map`, for which a key function's StopIteration is the end.
            partitions = [choose(item) for item in asked]
        # Sorted without the guard: the loop gets it as often as it is free.
        for partition, item in zip(partitions, asked, strict=True):
            (bins.get(partition) or _bin_of(partition, bins)).run.append(item)
    return list(bins.values())


def _bin_of(partition: Partition[Any], bins: dict[Partition[Any], Bin]) -> Bin:
    own = bins.get(partition)
    if own is None:
        own = bins[partition] = Bin(partition)
    return own


class Sorter:
    """Sorts chunk after chunk into lists that it keeps: for `by_type`, on the loop.

    With many types half of what `sorted_bins` costs is making dicts and lists, which
    are always the same. Empty the runs of one `sort`, or `renew` them, then `end` it.
    """

    def __init__(self, placement: TypePlacement) -> None:
        self._placement = placement
        self._by_type: dict[type, list[Any]] = {}
        self._bins: dict[Partition[Any], Bin] = {}
        self._is_in_use = False
        # The placement's number of evictions when the lists were last forgotten.
        self._evictions = placement.placed.evictions

    def suits(self, chunk: Sequence[Any]) -> bool:
        """Whether sorting is cheaper than placing the items one by one.

        Measured: it is, from about five items per partition on. The sorter is in use
        already if a `__del__` or a signal handler puts a chunk in during another one.
        """
        return not self._is_in_use and len(chunk) >= 5 * len(self._bins)

    def sort(self, chunk: Sequence[Any]) -> Iterable[Bin]:
        """Return the chunk's items by partition, with empty bins for the others."""
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

    def renew(self, own: Bin) -> None:
        """Give a bin's run away: sort into another list from now on."""
        run: list[Any] = []
        own.run = run
        for item_type in own.types:
            self._by_type[item_type] = run

    def end(self, *, is_empty: bool) -> None:
        """Get ready for the next chunk; after an error forget all lists."""
        if not is_empty or self._evictions != self._placement.placed.evictions:
            # Forgotten and not emptied: a run may be a partition's own list already.
            self._by_type.clear()
            self._bins.clear()
            self._evictions = self._placement.placed.evictions
        self._is_in_use = False

    def _learn(self, item: object) -> None:
        partition = self._placement.partition_of(item)
        own = _bin_of(partition, self._bins)
        own.types += (type(item),)
        self._by_type[type(item)] = own.run
