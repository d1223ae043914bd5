"""Fair shares between keys, so that one that floods holds up nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from batchqueue_async._functions import require_sync_function
from batchqueue_async._validation import refuse, require_int
from batchqueue_async._wording import shown

from .selectors import comparable
from .value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")
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
        # As one comparison: nan is in no range.
        if not LIGHTEST <= weight <= HEAVIEST:
            refuse("weight", rule, weight)
        return round(weight * UNIT)

    def __repr__(self) -> str:
        weight = "" if self.weight is None else f", weight={_name_of(self.weight)}"
        return f"fair_by({_name_of(self.key)}{weight}, quantum={self.quantum})"


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
    `max_batch` a batch is one round; with it as many rounds as fill it, of shares so
    small that nobody waits for a second batch while there are fewer keys than places.

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
