"""Says in the log that items were dropped (`DROP_OLDEST`), once a minute at most.

Nothing of it is on a producer's way: a drain task looks at the counts after a cycle, at
most once a second, and the queue's end does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from batchqueue_async._engine.runtime.log import logger

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition

LOOKS: Final = 1.0
"""Seconds between two looks, at least."""
PERIOD: Final = 60.0
"""Seconds between two lines, at least."""


class DropReport:
    """What of one queue's drops the log does not know yet."""

    __slots__ = ("_name", "_partitions", "_told", "_told_at", "look_at")

    def __init__(self, name: str, partitions: Sequence[Partition[Any]]) -> None:
        self._name = name
        self._partitions = partitions
        self._told = 0
        self._told_at = -math.inf
        # When the next look is due.
        self.look_at = -math.inf

    def look(self, now: float) -> None:
        """Tell what was dropped since the last line; at its end `now` is inf."""
        self.look_at = now + LOOKS
        if now < self._told_at + PERIOD:
            return
        dropped = sum(each.accounts.dropped for each in self._partitions)
        more = dropped - self._told
        if not more:
            return
        logger.warning(
            "%s: %d items were dropped%s: newer ones displaced them in full partitions",
            self._name,
            more,
            f" (of {dropped} so far)" if self._told else "",
            queue=self._name,
            items=more,
        )
        self._told, self._told_at = dropped, now
