"""Which partition an item waits in.

Invariants of `TypePlacement` (promise B2):
* A type is placed once, at its first handler or item, and never moves.
* A type without a handler lives with the registered base that it resolves to.
* A type gets a partition of its own while there are empty ones; then the lightest.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.handlers import Handlers
from batchqueue_async._engine.partition import Partition
from batchqueue_async._policies.errors import InvalidSelection
from batchqueue_async._policies.selectors import PartitionSelector, by_type, round_robin
from batchqueue_async._policies.weights import Exact

T = TypeVar("T")

_UNGUARDED: AbstractContextManager[Any] = nullcontext()


class TypePlacement(Generic[T]):
    """`by_type`: every type stays in one partition for good."""

    __slots__ = (
        "_grows",
        "_handlers",
        "_lightest",
        "_types",
        "_weights",
        "guard",
        "partitions",
        "routes",
    )

    def __init__(
        self, partitions: Sequence[Partition[T]], handlers: Handlers, *, grows: bool
    ) -> None:
        self.partitions = partitions
        self._grows = grows
        self._handlers = handlers
        self.routes: dict[type, Partition[T]] = {}
        # Threads place types, too, once the queue is shared with them.
        self.guard = _UNGUARDED
        self._weights: list[Exact] = []
        self._types: list[int] = []
        self._lightest: list[tuple[int, Exact, int, int]] = []

    @property
    def first(self) -> Partition[T]:
        return self.partitions[0]

    def partition_of(self, item: T) -> Partition[T]:
        if (sole := self.sole) is not None:
            return sole
        item_type = type(item)
        partition = self.routes.get(item_type)
        if partition is None:
            with self.guard:
                registration = self._handlers.nearest(item_type)
                base = None if registration is None else registration.item_type
                partition = self.place(item_type if base is None else base)
                self._settle(item_type, partition)
        return partition

    def place(self, item_type: type, weight: Exact = 0) -> Partition[T]:
        """Return the type's partition for good, and book `weight` more to it."""
        if (sole := self.sole) is not None:
            return self.routes.setdefault(item_type, sole)
        with self.guard:
            self._see_growth()
            partition = self.routes.get(item_type)
            if partition is None:
                partition = self.partitions[self._pop_lightest()]
                self._settle(item_type, partition)
            self._weights[partition.index] += weight
            self._push(partition.index)
            return partition

    @property
    def sole(self) -> Partition[T] | None:
        """The only partition, if it stays so: nobody has to ask where an item goes."""
        is_sole = len(self.partitions) == 1 and not self._grows
        return self.partitions[0] if is_sole else None

    def has_one_type(self, partition: Partition[T]) -> bool:
        """Whether the partition's items can only be of one type."""
        # A sole partition's types are not even looked at, so nothing is known of them.
        return partition.index < len(self._types) and self._types[partition.index] == 1

    def _settle(self, item_type: type, partition: Partition[T]) -> None:
        if item_type not in self.routes:
            self.routes[item_type] = partition
            self._types[partition.index] += 1
            self._push(partition.index)

    def _see_growth(self) -> None:
        for index in range(len(self._weights), len(self.partitions)):
            self._weights.append(0)
            self._types.append(0)
            self._push(index)

    def _rank(self, index: int) -> tuple[int, Exact, int, int]:
        # Empty ones first; then by weight, and by types where weights are equal.
        types = self._types[index]
        return (min(types, 1), self._weights[index], types, index)

    def _push(self, index: int) -> None:
        heapq.heappush(self._lightest, self._rank(index))

    def _pop_lightest(self) -> int:
        # Ranks are pushed at each change and never removed: skip outdated ones.
        while True:
            rank = heapq.heappop(self._lightest)
            if rank == self._rank(rank[-1]):
                return rank[-1]


class SelectorPlacement(Generic[T]):
    """A callable decides per item; its answer is checked."""

    __slots__ = (
        "_selector",
        "guard",
        "partitions",
        "routes",
    )

    def __init__(
        self, partitions: Sequence[Partition[T]], selector: PartitionSelector[T]
    ) -> None:
        self.partitions = partitions
        self._selector = selector
        self.routes: dict[type, Partition[T]] = {}
        # A selector is never called on two threads at once.
        self.guard = _UNGUARDED

    @property
    def first(self) -> Partition[T]:
        return self.partitions[0]

    @property
    def sole(self) -> Partition[T] | None:
        """None: a selector is asked about each item, also for one partition."""
        return None

    def has_one_type(self, partition: Partition[T]) -> bool:
        """Return False: any type may be in any partition."""
        return False

    def partition_of(self, item: T) -> Partition[T]:
        count = len(self.partitions)
        with self.guard:
            index = self._selector(item, count)
        if type(index) is int and 0 <= index < count:
            return self.partitions[index]
        msg = f"selector must return an int from 0 to {count - 1}, got {index!r}"
        raise InvalidSelection(msg)


def placement_for(
    selector: PartitionSelector[T],
    partitions: Sequence[Partition[T]],
    handlers: Handlers,
    *,
    grows: bool,
) -> TypePlacement[T] | SelectorPlacement[T]:
    """Return the placement that the configured selector stands for."""
    if selector is by_type:
        return TypePlacement(partitions, handlers, grows=grows)
    if selector is round_robin:
        return SelectorPlacement(partitions, _round_robin())
    return SelectorPlacement(partitions, selector)


def _round_robin() -> Callable[[object, int], int]:
    turns = itertools.count()
    return lambda _item, partitions: next(turns) % partitions
