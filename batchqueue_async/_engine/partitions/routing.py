"""Which partition an item waits in.

Invariants of `TypePlacement` (promise B2):
* A type is placed once, at its first handler or item, and never moves while it lives.
* A type without a handler lives with the registered base that it resolves to.
* A type gets a partition of its own while there are empty ones; then the lightest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from batchqueue_async._engine.partitions.unguarded import UNGUARDED
from batchqueue_async._engine.partitions.weak_type_dict import WeakTypeDict
from batchqueue_async._policies.errors import InvalidSelection
from batchqueue_async._policies.selectors import (
    PLAIN_KEYS,
    FairSelector,
    KeySelector,
    PartitionSelector,
    by_type,
    round_robin,
)
from batchqueue_async._policies.sizing import Exact
from batchqueue_async._wording import kind_of

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import HandlerRegistry
    from batchqueue_async._engine.partitions.fair_partition import FairPartition
    from batchqueue_async._engine.partitions.partition import Partition


BuffersToTake: TypeAlias = (
    "Callable[[Sequence[Partition[Any]], int | None], list[Partition[Any]]]"
)

# An answer that is a larger number may be user data: the error names its type only.
_TELLING = 100_000


class TypePlacement:
    """`by_type`: every type stays in one partition for good."""

    __slots__ = (
        "_grows",
        "_handlers",
        "guard",
        "lightest",
        "partitions",
        "placed",
        "routes",
    )

    def __init__(
        self,
        partitions: Sequence[Partition[Any]],
        handlers: HandlerRegistry,
        *,
        grows: bool,
    ) -> None:
        self.partitions = partitions
        self._grows = grows
        self._handlers = handlers
        self.placed: WeakTypeDict[Partition[Any]] = WeakTypeDict(handlers.types)
        # The partitions of types that came lately; `partition_of` finds the others.
        self.routes = self.placed.near
        # Threads place types, too, once the queue is shared with them.
        self.guard: AbstractContextManager[Any] = UNGUARDED
        # None where there is nothing to choose.
        self.lightest: Lightest | None = None

    choose: None = None
    """No selector is asked."""
    buffers_to_take: None = None
    """Partitions are taken from as a whole."""

    def partition_of(self, item: object) -> Partition[Any]:
        if (sole := self.sole) is not None:
            return sole
        item_type = type(item)
        partition = self.routes.get(item_type)
        if partition is None:
            with self.guard:
                if self.placed.recall(item_type):
                    return self.routes[item_type]
                registration = self._handlers.nearest(item_type)
                base = None if registration is None else registration.item_type
                partition = self.place(item_type if base is None else base)
                self._assign(item_type, partition)
        return partition

    def look(self, item: object) -> Partition[Any]:
        """Return where the item would wait if it came next, and place nothing."""
        if (sole := self.sole) is not None:
            return sole
        with self.guard:
            partition = self.placed.get(type(item))
            if partition is None:
                registration = self._handlers.nearest(type(item))
                if registration is not None and registration.item_type is not None:
                    partition = self.placed.get(registration.item_type)
            return partition or self.partitions[self._seen().find()]

    def place(self, item_type: type, weight: Exact = 0) -> Partition[Any]:
        """Return the type's partition for good, and book `weight` more to it."""
        if (sole := self.sole) is not None:
            partition = self.routes.setdefault(item_type, sole)
        else:
            with self.guard:
                lightest = self._seen()
                if self.placed.recall(item_type):
                    partition = self.routes[item_type]
                else:
                    partition = self.partitions[lightest.find()]
                    self._assign(item_type, partition)
                lightest.book(partition.index, 0, weight)
        if weight < 0:
            # A handler is gone, so its type may leave `near`.
            with self.guard:
                self.placed.trim()
        return partition

    @property
    def sole(self) -> Partition[Any] | None:
        """The only partition, if it stays so: nobody has to ask where an item goes."""
        is_sole = len(self.partitions) == 1 and not self._grows
        return self.partitions[0] if is_sole else None

    def has_one_type(self, partition: Partition[Any]) -> bool:
        # A sole partition's types are not even looked at, so nothing is known of them.
        if self.lightest is None or partition.index >= len(self.lightest.types):
            return False
        return self.lightest.types[partition.index] == 1

    def _assign(self, item_type: type, partition: Partition[Any]) -> None:
        if item_type not in self.routes:
            # Counted first: after a Ctrl-C in between, one too many does no harm.
            self._seen().book(partition.index, 1)
            self.placed.add(item_type, partition)

    def _seen(self) -> Lightest:
        """Return `lightest`, with new partitions added and ended types taken out."""
        if self.lightest is None:
            self.lightest = Lightest()
            self.placed.ended = []
        self.lightest.grow(len(self.partitions))
        while self.placed.ended:
            self.lightest.book(self.placed.ended.pop().index, -1)
        return self.lightest


class SelectorPlacement:
    """A callable decides per item; its answer is checked."""

    lightest: None = None
    """No partition is chosen by what is in it."""

    def __init__(
        self, partitions: Sequence[Partition[Any]], selector: PartitionSelector[Any]
    ) -> None:
        self.partitions = partitions
        self._selector = selector
        # Asks the selector, on any thread that holds the guard.
        self.choose: Callable[[Any], Partition[Any]] = self._choose
        # Where keys share partitions: chooses which of their buffers to take from.
        self.buffers_to_take: BuffersToTake | None = None
        if isinstance(selector, FairSelector):
            # Imported here, since few programs need it.
            from batchqueue_async._engine.partitions.fair_partition import (  # noqa: PLC0415
                buffers_to_take,
            )

            self.buffers_to_take = buffers_to_take
            self.choose = _chosen_fairly(selector, partitions)
        elif isinstance(selector, KeySelector):
            self.choose = _chosen_by_key(selector, partitions)
        self.routes: dict[type, Partition[Any]] = {}
        # A selector is never called on two threads at once.
        self.guard: AbstractContextManager[Any] = UNGUARDED

    @property
    def sole(self) -> Partition[Any] | None:
        """None: a selector is asked about each item, also for one partition."""
        return None

    def has_one_type(self, partition: Partition[Any]) -> bool:
        return False

    def partition_of(self, item: object) -> Partition[Any]:
        with self.guard:
            return self.choose(item)

    def look(self, item: object) -> Partition[Any]:
        """Return where the item would wait if it came next; asks the selector."""
        if isinstance(self._selector, _RoundRobin):
            with self.guard:
                return self.partitions[self._selector.turn % len(self.partitions)]
        return self.partition_of(item)

    def _choose(self, item: object) -> Partition[Any]:
        count = len(self.partitions)
        index = self._selector(item, count)
        if type(index) is int and 0 <= index < count:
            return self.partitions[index]
        # The answer may be user data, so the message names no more than its kind.
        is_near = type(index) is int and abs(index) < _TELLING
        told = index if is_near else kind_of(index)
        msg = f"selector must return an int from 0 to {count - 1}, got {told}"
        raise InvalidSelection(msg)


def placement_for(
    selector: PartitionSelector[Any],
    partitions: Sequence[Partition[Any]],
    handlers: HandlerRegistry,
    *,
    grows: bool,
) -> TypePlacement | SelectorPlacement:
    if selector is by_type:
        return TypePlacement(partitions, handlers, grows=grows)
    if selector is round_robin:
        return SelectorPlacement(partitions, _RoundRobin())
    return SelectorPlacement(partitions, selector)


def _chosen_by_key(
    selector: KeySelector[Any], partitions: Sequence[Partition[Any]]
) -> Callable[[Any], Partition[Any]]:
    """Return a faster way to ask a `by_key`, whose answer needs no check."""
    key_of, index_of = selector.key, selector.index_of

    def choose(item: object) -> Partition[Any]:
        key = key_of(item)
        if type(key) in PLAIN_KEYS:
            return partitions[hash(key) % len(partitions)]
        return partitions[index_of(key, len(partitions))]

    return choose


def _chosen_fairly(
    selector: FairSelector[Any, Any], partitions: Sequence[Partition[Any]]
) -> Callable[[Any], Partition[Any]]:
    """Return a function that finds the buffer of an item's key in its partition."""
    fair = cast("Sequence[FairPartition[Any]]", partitions)

    def choose(item: object) -> Partition[Any]:
        key = selector.key(item)
        if type(key) not in PLAIN_KEYS:
            key = selector.comparable(key)
        return fair[hash(key) % len(fair)].buffer_of(key)

    return choose


class _RoundRobin:
    """Each item goes to the next partition."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self, _item: object, partitions: int) -> int:
        turn = self.turn
        self.turn = turn + 1
        return turn % partitions


_Rank = tuple[int, Exact, int, int]


class Lightest:
    """Weights and numbers of types, by partition, and which has the least of them."""

    def __init__(self) -> None:
        self.weights: list[Exact] = []
        self.types: list[int] = []
        self._ranks: list[_Rank] = []

    def grow(self, count: int) -> None:
        """Add new partitions, up to this number."""
        for index in range(len(self.types), count):
            self.weights.append(0)
            self.types.append(0)
            self._push(index)

    def book(self, index: int, types: int, weight: Exact = 0) -> None:
        """Add to a partition's number of types and weight; both may be negative."""
        self.types[index] += types
        self.weights[index] += weight
        self._push(index)

    def find(self) -> int:
        """Return the lightest partition; the caller books a type or weight to it."""
        # Ranks are pushed at each change and not removed: skip outdated ones.
        while self._ranks:
            rank = self._ranks[0]
            if rank == self._rank(rank[-1]):
                return rank[-1]
            heapq.heappop(self._ranks)
        # A Ctrl-C came before the rank of the last change was pushed.
        self._rank_all()
        return self._ranks[0][-1]

    def _rank(self, index: int) -> _Rank:
        # Empty ones first; then by weight, and by types where weights are equal.
        types = self.types[index]
        return (min(types, 1), self.weights[index], types, index)

    def _push(self, index: int) -> None:
        if len(self._ranks) < 1.5 * len(self.types) + 16:
            heapq.heappush(self._ranks, self._rank(index))
        else:
            # Amortised: a third of them are outdated.
            self._rank_all()

    def _rank_all(self) -> None:
        ranks = [self._rank(each) for each in range(len(self.types))]
        heapq.heapify(ranks)
        self._ranks = ranks
