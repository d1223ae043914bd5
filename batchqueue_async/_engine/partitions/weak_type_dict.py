"""A dict by type that keeps no type alive, and loses no value of one that lives.

A program may make classes as it goes: one per schema, per request, per test. A dict of
all types that ever came would keep them as long as the queue. Weak keys would not, but
are too slow for hot paths. So there is a plain dict, `near`, of the pinned types and of
those that came lately; what had to leave it is remembered weakly.

Invariant: as long as a type lives, and so as long as there is any item of it, it has
one and the same value, near or far.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar
from weakref import ref

V = TypeVar("V")

LEAST = 256
"""So many types that are not pinned may be near, however few are in use."""


class WeakTypeDict(Generic[V]):
    """A dict by type with a memory for what had to leave it.

    When types that are not pinned have become too many, all of them leave. Those that
    are used again come back, one by one. For each that came back two more may be near
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

    def __init__(self, pinned: Collection[type]) -> None:
        self.near: dict[type, V] = {}
        # The types that stay near: those with a handler of their own.
        self._pinned = pinned
        self._far: dict[ref[type], V] | None = None
        # How many came back since all had to leave, and in the period before that.
        self._back = 0
        self._back_before = 0
        # How often they had to leave; other caches of types are cleared then, too.
        self.evictions = 0
        # The values of types that were collected, for the owner of the dict to take.
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
        self._far = None
        # In this order: a signal handler may raise after the call.
        self.near.clear()

    def _let_go(self) -> None:
        self._back_before, self._back = self._back, 0
        self.evictions += 1
        if self._far is None:
            self._far = {}
        for item_type in list(self.near):
            # A type that equals another would be forgotten when that one ends.
            is_itself = type(item_type).__eq__ is object.__eq__
            if is_itself and item_type not in self._pinned:
                self._far[ref(item_type, self._end)] = self.near[item_type]
                self.near.pop(item_type, None)

    def _end(self, dead: ref[type]) -> None:
        # Called when the garbage collector runs, on any thread: one step, no lock.
        if self._far is not None and dead in self._far:
            value = self._far.pop(dead)
            if self.ended is not None:
                self.ended.append(value)
