"""Items' types: values by type, which keep no type alive, and looks at many items.

A program may make classes as it goes: one per schema, per request, per test. A dict of
all types that ever came would keep them as long as the queue. Weak keys would not, but
are too slow for hot paths. So there is a plain dict, `near`, of the pinned types and of
those that came lately; what had to leave it is remembered weakly.

Invariant: as long as a type lives, and so as long as there is any item of it, it has
one and the same value, near or far.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Sequence, Sized
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

V = TypeVar("V")

LEAST = 256
"""So many types that are not pinned may be near, however few are in use."""


class Pinned(Container[type], Sized, Protocol):
    """The types that stay near: those with a handler of their own."""


class TypeMap(Generic[V]):
    """A dict by type with a memory for what had to leave it.

    When types that are not pinned have become too many, all of them leave. Those that
    are used again come back, one by one; as many as came back are let in twice as often
    before all have to leave again, so that types in steady use stay.
    """

    __slots__ = (
        "_back",
        "_back_before",
        "_far",
        "_pinned",
        "ended",
        "evictions",
        "near",
    )

    def __init__(self, pinned: Pinned) -> None:
        self.near: dict[type, V] = {}
        self._pinned = pinned
        self._far: dict[ref[type], V] | None = None
        # How many came back since all had to leave, and in the time before that.
        self._back = 0
        self._back_before = 0
        # How often they had to leave; whoever caches types leaves them then, too.
        self.evictions = 0
        # The values of types that are no more, for the owner to take.
        self.ended: list[V] | None = None

    def recall(self, item_type: type) -> bool:
        """Bring a type that had to leave back near; whether it is near now."""
        if item_type in self.near:
            return True
        if self._far:
            known = ref(item_type)
            if known in self._far:
                self.near[item_type] = self._far[known]
                self._far.pop(known, None)
                self._back += 1
                return True
        return False

    def get(self, item_type: type) -> V | None:
        if item_type in self.near:
            return self.near[item_type]
        return self._far.get(ref(item_type)) if self._far else None

    def add(self, item_type: type, value: V) -> None:
        """Let a new type in."""
        self.trim()
        self.near[item_type] = value

    def trim(self) -> None:
        """Let the types that are not pinned leave, if there are too many."""
        in_use = len(self._pinned) + max(self._back, self._back_before)
        if len(self.near) >= LEAST + 2 * in_use:
            self._let_go()

    def clear(self) -> None:
        self.near.clear()
        self._far = None

    def _let_go(self) -> None:
        self._back_before, self._back = self._back, 0
        self.evictions += 1
        if self._far is None:
            self._far = {}
        for item_type in list(self.near):
            # Equal to another type, it would be forgotten when that one ends.
            is_itself = type(item_type).__eq__ is object.__eq__
            if is_itself and item_type not in self._pinned:
                self._far[ref(item_type, self._end)] = self.near[item_type]
                self.near.pop(item_type, None)

    def _end(self, dead: ref[type]) -> None:
        # Whenever the garbage collector runs, on any thread: one step, no lock.
        if self._far is not None and dead in self._far:
            value = self._far.pop(dead)
            if self.ended is not None:
                self.ended.append(value)


# From so many items on a chunk is looked at when it comes, still in the processor's
# caches. Measured beside a look at the take: a fifth slower with chunks of 100, between
# 3 % slower and 10 % faster with 250 to 500, up to a tenth faster with 1,000.
WORTH_A_LOOK = 250


# What waits in more partitions than these does not stay in the processor's caches.
MANY = 64


def have_one_type(items: Sequence[object]) -> bool:
    """Whether all have the first one's type: looked at in C, if the last one has it."""
    first = type(items[0])
    return type(items[-1]) is first and [*map(type, items)].count(first) == len(items)


def have_type(chunk: Sequence[Any], item_type: type) -> bool:
    """Whether all of a chunk that is worth a look have exactly this type."""
    try:
        types = _Types(type, chunk)
        types.__length_hint__ = chunk.__len__
        return [*types].count(item_type) == len(chunk)
    except Exception:  # noqa: BLE001 - a metaclass may do anything when compared
        return False


class _Types(map):  # type: ignore[type-arg]  # cannot be subscripted when it runs
    """The types of some items, and how many: so a list of them is made in one piece.

    One that grows as it is filled costs 8 % more with 1,000 items; with less than 200
    it is cheaper. The hint is a slot, so that no Python function has to be called.
    """

    __slots__ = ("__length_hint__",)

    __length_hint__: Callable[[], int]


def fetch(items: Sequence[object]) -> None:
    """Have what came long ago in the processor's caches, not fetched one by one."""
    with contextlib.suppress(MemoryError):
        list(items)


def first_indexes(items: list[Any]) -> dict[type, int]:
    """Return where in the list the first item of each type is."""
    # Backwards, so that each type's first index is the last one to be set.
    backwards = range(len(items) - 1, -1, -1)
    return dict(zip(map(type, reversed(items)), backwards, strict=True))
