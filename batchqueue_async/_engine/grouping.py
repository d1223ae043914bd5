"""Sorts what one cycle took into one batch per handler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.batch import Batch
from batchqueue_async._engine.handlers import Handlers
from batchqueue_async._engine.one_type import have_one_type
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration

T = TypeVar("T")

_NO_INDEXES: dict[type, int] = {}


class Grouping(Generic[T]):
    """The batches of one cycle, in the order in which their first items were taken."""

    def __init__(
        self, handlers: Handlers, has_one_type: Callable[[Partition[T]], bool]
    ) -> None:
        self._handlers = handlers
        self._has_one_type = has_one_type
        self._batches: dict[Registration | None, Batch[T]] = {}
        # What there was no memory for to put it into the batch of its handler.
        self._apart: list[Batch[T]] = []

    def add(self, partition: Partition[T], items: list[T]) -> None:
        """Add what was taken from a partition; order within it is kept."""
        try:
            lists, firsts = self._sort(partition, items)
        except Exception:  # noqa: BLE001 - a metaclass may do anything
            lists, firsts = self._sort_by_identity(items), _NO_INDEXES
        batches = self._batches
        first = partition.taken_from
        for registration, own in lists.items():
            if firsts:
                first = partition.taken_from + firsts[type(own[0])]
            batch = batches.get(registration)
            if batch is None:
                batches[registration] = Batch(registration, own, partition, first)
            else:
                self._extend(batch, own, partition, first)

    def _extend(
        self, batch: Batch[T], own: list[T], partition: Partition[T], first: int
    ) -> None:
        try:
            batch.add(own, partition, first)
        except MemoryError:
            self._apart.append(Batch(batch.registration, own, partition, first))

    def _sort(
        self, partition: Partition[T], items: list[T]
    ) -> tuple[dict[Registration | None, list[T]], dict[type, int]]:
        consumer = self._handlers.consumer
        if consumer is not None:
            return {consumer: items}, _NO_INDEXES
        # Grouping costs more per item than anything else: avoid it where all items
        # have one type: the partition has, or it was seen when they came, or now.
        if (
            partition.took_one_type
            or self._has_one_type(partition)
            or have_one_type(items)
        ):
            return {self._handlers.of(type(items[0])): items}, _NO_INDEXES
        lists = self._by_handler(items)
        # Where in the take a handler's first item is matters if somebody waits for it.
        watched = partition.accounts.is_watched
        return lists, _first_indexes(items) if watched else _NO_INDEXES

    def _sort_by_identity(self, items: list[T]) -> dict[Registration | None, list[T]]:
        """Sort items of which some have a type that cannot be hashed, or compared."""
        lists: dict[Registration | None, list[T]] = {}
        try:
            for item in items:
                registration = self._handlers.of_identical(type(item))
                lists.setdefault(registration, []).append(item)
        except MemoryError as error:
            # Taken they are, so they fail.
            return {Registration(partial(_refuse, error)): items}
        return lists

    def _by_handler(self, items: list[T]) -> dict[Registration | None, list[T]]:
        lists: defaultdict[type, list[T]] = defaultdict(list)
        for item in items:
            lists[type(item)].append(item)
        found = [*map(self._handlers.of, lists)]
        by_handler = dict(zip(found, lists.values(), strict=True))
        if len(by_handler) < len(lists):
            # Types that share a handler keep their order among each other.
            of = dict(zip(lists, found, strict=True))
            by_handler = {registration: [] for registration in by_handler}
            for item in items:
                by_handler[of[type(item)]].append(item)
        return by_handler

    def batches(self, most: int | None) -> list[Batch[T]]:
        """Return the batches, those of more than `most` items in pieces."""
        whole = [*self._batches.values(), *self._apart]
        if most is None:
            return whole
        pieces: list[Batch[T]] = []
        for batch in whole:
            try:
                pieces.extend(batch.pieces(most))
            except MemoryError:
                # Too long is better than lost.
                pieces.append(batch)
        return pieces


def _refuse(error: MemoryError, _: list[Any]) -> None:
    raise error


def _first_indexes(items: list[Any]) -> dict[type, int]:
    # Backwards, so that each type's first index is the last one to be set.
    backwards = range(len(items) - 1, -1, -1)
    return dict(zip(map(type, reversed(items)), backwards, strict=True))
