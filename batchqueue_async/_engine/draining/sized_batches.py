"""Batches that are bounded by the sizes of their items."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeVar

from batchqueue_async._engine.draining.batch import Batch, Grouping
from batchqueue_async._engine.handlers.registration import Registration
from batchqueue_async._engine.partitions.byte_budget import Measured
from batchqueue_async._policies.sizing import Exact

T = TypeVar("T")


class SizedGrouping(Grouping[T]):
    """Makes batches of measured items, and cuts them by number and by size.

    After that sizes are not needed: batches that are retried are these, or their parts.
    """

    __slots__ = ()

    def batches(self, most: int | None) -> list[Batch[T]]:
        whole = [*self._batches.values(), *(self._apart or ())]
        pieces: list[Batch[T]] = []
        for batch in whole:
            registration = batch.registration
            if registration is None:
                pieces.append(batch)
                continue
            try:
                places = _places_to_cut(batch, registration)
                pieces.extend(batch.cut(places) if places else [batch])
            except MemoryError:
                # Too large is better than lost.
                pieces.append(batch)
        return pieces

    def _by_handler(self, items: list[T]) -> dict[Registration | None, Any]:
        lists: dict[Registration | None, Measured[T]] = {}
        found: dict[type, Measured[T]] = {}
        for item, size in zip(items, _sizes_of(items), strict=True):
            own = found.get(type(item))
            if own is None:
                registration = self._handlers.of(type(item))
                own = found[type(item)] = lists.setdefault(registration, Measured())
            own.append(item)
            own.sizes.append(size)
        return lists

    def _by_identical_type(self, items: list[T]) -> dict[Registration | None, list[T]]:
        lists: dict[Registration | None, list[T]] = {}
        for item, size in zip(items, _sizes_of(items), strict=True):
            registration = self._handlers.of_identical(type(item))
            own = lists.setdefault(registration, Measured())
            assert isinstance(own, Measured)
            own.add(item, size)
        return lists


def _sizes_of(items: list[Any]) -> Sequence[Exact]:
    assert isinstance(items, Measured)
    return items.sizes


def _places_to_cut(batch: Batch[Any], registration: Registration) -> list[int]:
    """Return where a batch exceeds what its handler takes, by number or by size."""
    sizes, declared = _sizes_of(batch.items), registration.settings.max_batch_bytes
    most = registration.max_batch or len(sizes)
    bound = sum(sizes) if declared is None else declared
    if len(sizes) <= most and sum(sizes) <= bound:
        # As nearly all, since a take is bounded, too.
        return []
    ends, place, before = [*accumulate(sizes)], 0, 0
    places: list[int] = []
    while True:
        fitting = bisect_right(ends, before + bound, place)
        place = min(max(fitting, place + 1), place + most)
        if place >= len(ends):
            return places
        places.append(place)
        before = ends[place - 1]  # type: ignore[assignment]
