"""Sorts what one cycle took into one batch per handler."""

from __future__ import annotations

from collections.abc import Callable
from operator import countOf
from typing import Generic, TypeVar

from batchqueue_async._engine.batch import Batch, Share
from batchqueue_async._engine.handlers import Handlers
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration

T = TypeVar("T")


class Grouping(Generic[T]):
    """The batches of one cycle, in the order in which their first items were taken."""

    def __init__(
        self, handlers: Handlers, types_in: Callable[[Partition[T]], int]
    ) -> None:
        self._handlers = handlers
        self._types_in = types_in
        self._batches: dict[Registration | None, Batch[T]] = {}

    def add(self, partition: Partition[T], items: list[T]) -> None:
        """Add what was taken from a partition; order within it is kept."""
        if self._handlers.consumer is not None:
            self._give(self._handlers.consumer, partition, items)
            return
        first = type(items[0])
        # Grouping costs more per item than anything else: avoid it where all items
        # have one type, because the partition has, or because a count in C says so.
        if self._types_in(partition) == 1 or countOf(map(type, items), first) == len(
            items
        ):
            self._give(self._handlers.of(first), partition, items)
            return
        by_handler: _ByHandler[T] = _ByHandler(self._handlers)
        for item in items:
            by_handler[type(item)].append(item)
        for registration, own in by_handler.lists.items():
            self._give(registration, partition, own, _offset(partition, items, own))

    def batches(self, most: int | None) -> list[Batch[T]]:
        """Return the batches, those of more than `most` items in pieces."""
        whole = self._batches.values()
        if most is None:
            return list(whole)
        return [piece for batch in whole for piece in batch.pieces(most)]

    def _give(
        self,
        registration: Registration | None,
        partition: Partition[T],
        items: list[T],
        offset: int = 0,
    ) -> None:
        share = Share(partition, len(items), partition.taken_from + offset)
        batch = self._batches.get(registration)
        if batch is None:
            self._batches[registration] = Batch(registration, items, [share])
        else:
            batch.add(share, items)


def _offset(partition: Partition[T], items: list[T], own: list[T]) -> int:
    """Return where in the take a handler's first item is, if somebody waits for it."""
    if not partition.accounts.is_watched:
        return 0
    first = own[0]
    return next(index for index, item in enumerate(items) if item is first)


class _ByHandler(dict[type, list[T]]):
    """A list for each exact type; types of one handler share theirs, so in order."""

    def __init__(self, handlers: Handlers) -> None:
        super().__init__()
        self._handlers = handlers
        self.lists: dict[Registration | None, list[T]] = {}

    def __missing__(self, item_type: type) -> list[T]:
        registration = self._handlers.of(item_type)
        shared = self.lists.setdefault(registration, [])
        self[item_type] = shared
        return shared
