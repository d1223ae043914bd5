"""How many items a take removes from a partition, where handlers' limits differ.

It is as many as the largest batch may have; of handlers that find their limits by
trying, it has room for a batch of each, since their items may wait in one partition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import (
        HandlerRegistry,
        Registration,
    )
    from batchqueue_async._engine.handlers.settings import HandlerSettings
    from batchqueue_async._engine.queue_parts import Parts


class TakeLimit:
    """Follows the handlers as they come and go, and their limits as these change."""

    __slots__ = ("_found", "_largest", "_most", "_total")

    def __init__(self, settings: HandlerSettings) -> None:
        self._most = settings.most
        queues = settings.max_batch
        # Of those that were declared; None if the queue has no limit of its own.
        self._largest = 0 if queues == "auto" else queues
        # The handlers with limits that are found by trying, and the sum of these.
        self._found: dict[Registration, int] = {}
        self._total = 0

    @property
    def items(self) -> int | None:
        """How many items a take removes; None for all."""
        if self._largest is None:
            return None
        return max(self._largest, self._total) or self._most

    def add(self, registration: Registration) -> None:
        most = registration.max_batch
        if registration.limit is not None:
            self._found[registration] = 0
            self.changed(registration)
        elif most is not None and self._largest is not None:
            self._largest = max(self._largest, most)

    def remove(self, registration: Registration) -> None:
        """A handler was replaced or removed; what was declared for it stays."""
        self._total -= self._found.pop(registration, 0)

    def changed(self, registration: Registration) -> None:
        """It has another limit now; one that was removed may still be at work."""
        known = self._found.get(registration)
        if known is not None and registration.max_batch is not None:
            self._found[registration] = registration.max_batch
            self._total += registration.max_batch - known


def follow(
    handlers: HandlerRegistry, new: Registration | None, gone: Registration | None
) -> None:
    """Have takes be as large as the batches of the handlers that there are now."""
    limit = handlers.take_limit
    if limit is None:
        if new is None or new.max_batch == handlers.settings.max_batch:
            return
        limit = handlers.take_limit = TakeLimit(handlers.settings)
        handlers.have_limits = True
    if gone is not None:
        limit.remove(gone)
    if new is not None:
        limit.add(new)
    handlers.most_taken = limit.items


def learn(
    parts: Parts[Any],
    registration: Registration,
    items: int,
    seconds: float,
    error: BaseException | None,
) -> None:
    """A call of a handler has ended: a limit that is found by trying follows."""
    limit, handlers = registration.limit, parts.handlers
    if limit is None or isinstance(error, asyncio.CancelledError):
        return
    limit.called(items, seconds, error)
    if limit.size == registration.max_batch:
        return
    registration.max_batch = limit.size
    if handlers.take_limit is not None:
        handlers.take_limit.changed(registration)
        handlers.most_taken = handlers.take_limit.items
    parts.layout.terms.limit_changed(registration)
