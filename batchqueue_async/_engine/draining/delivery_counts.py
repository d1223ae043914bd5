"""What is counted of a queue's deliveries, beside each partition's accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchqueue_async._policies.config import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


class DeliveryCounts:
    """Counts calls of handlers that are timed, and items that had to be tried again."""

    __slots__ = ("calls", "is_timed", "retried", "retry_after")

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
