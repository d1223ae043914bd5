"""Which partition an item waits in, and fair shares between keys.

So one key that floods holds up nobody else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Final, Generic, NoReturn, Protocol, TypeAlias, TypeVar

from batchqueue_async._functions import require_sync_function
from batchqueue_async._validation import refuse, require_int
from batchqueue_async._wording import shown

from .value import Value

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")


class PartitionSelector(Protocol[T_contra]):
    """Any callable that maps an item to a partition's index; called per item."""

    def __call__(self, item: T_contra, partitions: int, /) -> int:
        """Return an index from 0 to `partitions` - 1."""


class QueueSelector(Enum):
    """A selector that the queue itself carries out: passed on, but never called."""

    BY_TYPE = "by_type"
    ROUND_ROBIN = "round_robin"

    def __call__(self, *_: Any) -> NoReturn:  # noqa: ANN401 - fits any item
        """Refuse: only a queue can do what this mark stands for."""
        msg = f"{self.value} is declared with selector={self.value}, never called"
        raise TypeError(msg)

    def __repr__(self) -> str:
        return self.value


by_type: Final = QueueSelector.BY_TYPE
"""Keep each type of item in one partition for good, so its items stay in order."""

round_robin: Final = QueueSelector.ROUND_ROBIN
"""Spread items over the partitions in turn; no order is kept between them."""


PLAIN_KEYS = frozenset({str, int, bytes})
"""Types of keys that need no check per item: always hashable, and never NaN."""


class KeySelector(Value, Generic[T]):
    """Items with equal keys share a partition; made by `by_key`."""

    key: Callable[[T], Hashable]

    def __post_init__(self) -> None:
        require_sync_function("key", self.key, 1, "one argument, an item")

    def __call__(self, item: T, partitions: int, /) -> int:
        return self.index_of(self.key(item), partitions)

    def index_of(self, key: Hashable, partitions: int) -> int:
        known = key if type(key) in PLAIN_KEYS else comparable(key, self)
        return hash(known) % partitions

    def __repr__(self) -> str:
        return f"by_key({_name_of(self.key)})"


def by_key(key: Callable[[T], Hashable]) -> KeySelector[T]:
    """Keep items whose `key(item)` is equal in one partition, hence in order.

    The index is stable within one process: the hash of a str differs between
    processes. None is a key like any other, and every NaN is the same key, alone
    or in a tuple. Needs a fixed number of partitions: growth would split keys.
    """
    return KeySelector(key)


def comparable(key: Hashable, selector: object) -> Hashable:
    """Return the key as it is looked up: any NaN in it is the same one."""
    try:
        known = _with_one_nan(key)
        hash(known)
    except TypeError as error:
        msg = f"{selector!r} needs hashable keys, got a {type(key).__name__}"
        raise TypeError(msg) from error
    return known


def _with_one_nan(key: Hashable) -> Hashable:
    """Replace every NaN by the same one: each NaN object has a hash of its own."""
    if isinstance(key, str | int | bytes):
        # A subclass of a plain key's type.
        return key
    if isinstance(key, tuple) and type(key).__hash__ is tuple.__hash__:
        return tuple(map(_with_one_nan, key))
    # Few keys get here, and every program's start would pay for the module.
    from numbers import Number  # noqa: PLC0415

    if isinstance(key, Number) and key != key:  # noqa: PLR0124 - only a NaN differs
        return math.nan
    return key


K = TypeVar("K", bound="Hashable")

UNIT: Final = 1 << 30
"""Weights are counted in whole parts of this size, so that sums of them are exact."""

LIGHTEST: Final = 1e-6
HEAVIEST: Final = 1e6


class FairSelector(Value, Generic[T, K]):
    """Each key has a buffer and its share of each batch; made by `fair_by`."""

    key: Callable[[T], K]
    weight: Callable[[K], float] | None = None
    quantum: int = 100

    def __post_init__(self) -> None:
        require_sync_function("key", self.key, 1, "one argument, an item")
        if self.weight is not None:
            require_sync_function("weight", self.weight, 1, "one argument, a key")
        require_int("quantum", self.quantum, at_least=1)

    def __call__(self, item: T, partitions: int, /) -> int:
        """Return the partition in which the item's key has its buffer."""
        return hash(self.comparable(self.key(item))) % partitions

    def comparable(self, key: K) -> Hashable:
        return comparable(key, self)

    def units_of(self, key: K) -> int:
        """Return what a key weighs, in parts of `UNIT`."""
        if self.weight is None:
            return UNIT
        weight: object = self.weight(key)
        rule = f"a number from {LIGHTEST} to {HEAVIEST:.0f} for every key"
        if not isinstance(weight, int | float) or isinstance(weight, bool):
            refuse("weight", rule, weight, TypeError)
        # One comparison refuses nan, too, which is in no range.
        if not LIGHTEST <= weight <= HEAVIEST:
            refuse("weight", rule, weight)
        return round(weight * UNIT)

    def __repr__(self) -> str:
        weight = "" if self.weight is None else f", weight={_name_of(self.weight)}"
        return f"fair_by({_name_of(self.key)}{weight}, quantum={self.quantum})"


# What a queue takes. `by_type` fits a `PartitionSelector` of Any, and mypy takes what a
# lambda gets there for Any: so would be, without a word, all items of such a queue.
Selector: TypeAlias = QueueSelector | PartitionSelector[T] | Callable[[T, int], int]


def fair_by(
    key: Callable[[T], K],
    *,
    weight: Callable[[K], float] | None = None,
    quantum: int = 100,
) -> FairSelector[T, K]:
    """Give each key, such as a tenant, a buffer of its own and its share of each batch.

    A key that floods fills its own buffer only: with `WAIT` only its own producers
    wait, with `DROP_NEWEST` and `DROP_OLDEST` only its own items go. Items with equal
    keys are handled in order (B1); between keys there is no order. Batches are filled
    in rounds, in which each key with items gives up to `quantum` of them. Without
    `max_batch` a batch is one round; with it as many rounds as fill it, with shares so
    small that each key is in every batch while there are fewer keys than places.

    Keys are compared as those of `by_key`, and come and go: a key without items leaves
    nothing behind. At most `buffer_size` items of each key wait, so in all at most that
    times the number of keys that have items. With several partitions, whose number must
    be fixed, a key stays in one, and each partition is fair by itself.

    The algorithm is deficit round robin, at a constant price per item as long as no
    key's weight times `quantum` is below 1: M. Shreedhar and G. Varghese, Efficient
    Fair Queueing Using Deficit Round Robin, SIGCOMM 1995.

    Args:
        key: A function of an item; what it returns must be hashable, and stay equal.
        weight: A function of a key: how much it gets, compared with others, from
            0.000001 to 1,000,000. Asked when a key's first item comes, and again after
            it had none. None for all the same.
        quantum: How many items a key of weight 1 gives in one round.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: The quantum is below 1.
    """
    return FairSelector(key, weight, quantum)


def _name_of(function: object) -> str:
    return getattr(function, "__qualname__", None) or shown(function)
