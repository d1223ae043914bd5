"""Sorts a chunk of items by partition, keeping the order within each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

from batchqueue_async._engine.one_type import have_one_type
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.placement import SelectorPlacement, TypePlacement

T = TypeVar("T")

Placement: TypeAlias = TypePlacement[T] | SelectorPlacement[T]
Run: TypeAlias = tuple[Partition[T], Sequence[T]]


def sole_partition(chunk: Sequence[T], placement: Placement[T]) -> Partition[T] | None:
    """Return the partition of the whole chunk, if that is seen without sorting it."""
    sole = placement.sole
    if sole is None and have_one_type(chunk):
        return placement.routes.get(type(chunk[0]))
    return sole


def sorted_runs(chunk: Sequence[T], placement: Placement[T]) -> list[Run[T]]:
    """Return a chunk's items by partition; on any thread that holds the guard."""
    if not chunk:
        return []
    sole = sole_partition(chunk, placement)
    if sole is not None:
        return [(sole, chunk)]
    runs: dict[Partition[T], list[T]] = {}
    by_type: dict[type, list[T]] = {}
    routes, of = placement.routes, placement.partition_of
    for item in chunk:
        run = by_type.get(type(item))
        if run is None:
            partition = of(item)
            run = runs.setdefault(partition, [])
            if routes.get(type(item)) is partition:
                by_type[type(item)] = run
        run.append(item)
    return list(runs.items())


class Sorter(Generic[T]):
    """Sorts chunk after chunk into lists that it keeps: for types on one loop.

    Half of the price of `sorted_runs` with many types is for dicts and lists, which
    are always the same. Use up what `sort` yields, or `clear` it.
    """

    __slots__ = (
        "_by_type",
        "_is_in_use",
        "_placement",
        "_runs",
    )

    def __init__(self, placement: TypePlacement[T]) -> None:
        self._placement = placement
        self._by_type: dict[type, list[T]] = {}
        self._runs: dict[Partition[T], list[T]] = {}
        self._is_in_use = False

    def suits(self, chunk: Sequence[T]) -> bool:
        """Whether sorting is cheaper than placing the items one by one.

        Measured: it is from about five items per partition on. In use, and yet called,
        is it from a `__del__`, in the middle of another chunk.
        """
        return not self._is_in_use and len(chunk) >= 5 * len(self._runs)

    def sort(self, chunk: Sequence[T]) -> Iterator[Run[T]]:
        """Yield the chunk's items by partition; each list is good until the next."""
        self._is_in_use = True
        self._sort(chunk)
        for partition, run in self._runs.items():
            if run:
                yield partition, run
                # Now, while its items are in the processor's caches.
                run.clear()
        self._is_in_use = False

    def clear(self) -> None:
        """Forget what an error has left there."""
        if self._is_in_use:
            for run in self._runs.values():
                run.clear()
            self._is_in_use = False

    def _sort(self, chunk: Sequence[T]) -> None:
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
                return

    def _learn(self, item: T) -> None:
        partition = self._placement.partition_of(item)
        self._by_type[type(item)] = self._runs.setdefault(partition, [])
