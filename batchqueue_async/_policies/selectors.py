"""Which partition an item waits in."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeVar

from batchqueue_async._functions import require_sync_function
from batchqueue_async._wording import shown

from .value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")


class PartitionSelector(Protocol[T_contra]):
    """Any callable that maps an item to a partition's index; called per item."""

    def __call__(self, item: T_contra, partitions: int, /) -> int:
        """Return an index from 0 to `partitions` - 1."""


class QueueSelector(Enum):
    """A selector whose state is the queue's: a mark that is passed uncalled."""

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
"""Types of keys that are hashable and no NaN: looked up per item."""


class KeySelector(Value, Generic[T]):
    """Items with equal keys share a partition; made by `by_key`."""

    key: Callable[[T], Hashable]

    def __post_init__(self) -> None:
        require_sync_function("key", self.key, 1, "one argument, an item")

    def __call__(self, item: T, partitions: int, /) -> int:
        return self.index_of(self.key(item), partitions)

    def index_of(self, key: Hashable, partitions: int) -> int:
        if type(key) in PLAIN_KEYS:
            return hash(key) % partitions
        try:
            return hash(_with_one_nan(key)) % partitions
        except TypeError as error:
            _refuse_unhashable(key, self, error)

    def __repr__(self) -> str:
        return f"by_key({getattr(self.key, '__qualname__', None) or shown(self.key)})"


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
        _refuse_unhashable(key, selector, error)
    return known


def _refuse_unhashable(key: object, selector: object, error: TypeError) -> NoReturn:
    msg = f"{selector!r} needs hashable keys, got a {type(key).__name__}"
    raise TypeError(msg) from error


def _with_one_nan(key: Hashable) -> Hashable:
    """Replace every NaN by one: each NaN object has a hash of its own."""
    if isinstance(key, str | int | bytes):
        # A subclass of one of them.
        return key
    if isinstance(key, tuple) and type(key).__hash__ is tuple.__hash__:
        return tuple(map(_with_one_nan, key))
    # Few keys get here, and every program's start would pay for the module.
    from numbers import Number  # noqa: PLC0415

    if isinstance(key, Number) and key != key:  # noqa: PLR0124 - only a NaN differs
        return math.nan
    return key
