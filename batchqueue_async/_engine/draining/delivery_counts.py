"""What is counted of a queue's deliveries, beside each partition's accounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import ref

from batchqueue_async._policies.config import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


class DeliveryCounts:
    """Counts calls of handlers that are timed, and items that had to be tried again."""

    __slots__ = ("_told", "calls", "is_timed", "retried", "retry_after")

    def __init__(self, parts: Parts) -> None:
        config = parts.config
        # Handlers are timed only where somebody asks what they cost.
        is_timed = parts.loads.in_seconds or config.measure_handlers
        is_timed = is_timed or parts.ownership.active is not None
        self.is_timed = is_timed or config.max_batch == AUTO
        # Calls of timed handlers that did not raise.
        self.calls = 0
        # Items that were to be tried again, counted each time.
        self.retried = 0
        # Longest pause that a handler asked for since adaptive drain tasks reset this.
        self.retry_after = 0.0
        # The types without a handler that were logged, which is done once for each. By
        # identity: a metaclass may refuse to be hashed. None until there are some.
        self._told: dict[int, ref[type]] | None = None

    def unhandled_news(self, items: Iterable[object]) -> list[type]:
        """Return those types of unhandled items that were not logged yet."""
        types = {id(each): each for each in map(type, items)}.values()
        return [each for each in types if self._is_news(each)]

    def forget_unhandled(self, item_type: type) -> None:
        """Forget that a type had no handler: if it has none again, that is logged."""
        if self._told is not None:
            self._told.pop(id(item_type), None)

    def _is_news(self, item_type: type) -> bool:
        if self._told is None:
            self._told = {}
        key, told = id(item_type), self._told
        known = told.get(key)
        if known is not None and known() is item_type:
            return False
        # Forgotten with the type: another one may get its identity.
        told[key] = ref(item_type, lambda _: told.pop(key, None))
        return True
