"""What the deliveries of all drain tasks of a queue count together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.draining.lost_items import UnhandledTypes
from batchqueue_async._policies.handler_options import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


class DeliveryCounts:
    """Handlers' calls, as far as they are timed, and what had to be tried again."""

    __slots__ = ("calls", "is_timed", "longest_pause", "retried", "unhandled")

    def __init__(self, parts: Parts[Any]) -> None:
        config = parts.config
        # Handlers are timed only where somebody asks what they cost.
        is_timed = parts.loads.in_seconds or config.measure_handlers
        is_timed = is_timed or parts.ownership.active is not None
        self.is_timed = is_timed or config.max_batch == AUTO
        # Of handlers that are timed, those that did not raise.
        self.calls = 0
        # Items that were tried again, each time.
        self.retried = 0
        # Seconds that a handler asked for, since adaptive drain tasks set it to zero.
        self.longest_pause = 0.0
        self.unhandled = UnhandledTypes()
