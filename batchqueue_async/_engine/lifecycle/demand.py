"""What drain tasks had to do in a round, told to who says how many are to work."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.lifecycle.adaptive_count import AdaptiveCount

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts


class Demand:
    """Measures rounds, and has so many drain tasks own partitions as help."""

    def __init__(self, parts: Parts[Any], least: int) -> None:
        self._parts = parts
        self.count = AdaptiveCount(least, len(parts.tasks.drain_tasks))
        self.begin_round(is_as_planned=True)

    def begin_round(self, *, is_as_planned: bool) -> None:
        """Measure from now on; it counts only where nothing was called off."""
        self._counts = is_as_planned
        self._began = asyncio.get_running_loop().time()
        self._handled = self._handled_now()
        self._retried = self._parts.delivery.retried
        self._busy = [each.busy for each in self._parts.tasks.drain_tasks]

    def end_round(self) -> None:
        """Decide how many there are to be from now on."""
        seconds = asyncio.get_running_loop().time() - self._began
        if seconds <= 0 or not self._counts:
            return
        self.count.round(
            (self._handled_now() - self._handled) / seconds,
            self._use(seconds),
            is_throttled=self._parts.delivery.retried > self._retried,
        )
        self._parts.ownership.active = self.count.count

    def _handled_now(self) -> int:
        handled = attrgetter("accounts.handled")
        return sum(map(handled, self._parts.partitions))

    def _use(self, seconds: float) -> float:
        active = self._parts.tasks.drain_tasks[: self._parts.ownership.active]
        used = 0.0
        for drain_task, before in zip(active, self._busy, strict=False):
            # A cycle that is not over is not booked yet.
            part = (drain_task.busy - before) / seconds
            used += 1.0 if drain_task.is_in_cycle else min(1.0, part)
        return used / len(active)
