"""How many drain tasks should be at work, found by trying: `DrainTaskPolicy.adaptive`.

Round by round it is told how many items were handled, and how busy the drain tasks
were. Where they are busy all the time it tries more of them, or fewer, and keeps what
raises items per second, discounted by their number, ``rate / count ** PRICE``: each of
them is a connection of the sink's. A try in vain makes the next one rarer. Where they
are idle for half of the time, one less is enough; and where items have to be tried
again, half of them, as in Vector's adaptive request concurrency. For the sources see
`adaptive_limit`.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from batchqueue_async._engine.handler_stats import CountReason, DrainTaskLimit

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

PRICE: Final = 0.15
"""Twice as many drain tasks have to handle 11 % more items to be worth it."""
BUSY: Final = 0.9
IDLE: Final = 0.5
"""Parts of their time that drain tasks spend in cycles."""
LONGEST_PAUSE: Final = 32
"""Rounds between tries that were in vain."""


class AdaptiveCount:
    """Says how many drain tasks own partitions; told what came of each round."""

    __slots__ = (
        "_before",
        "_changes",
        "_direction",
        "_is_backed_off",
        "_is_starting",
        "_least",
        "_most",
        "_pause",
        "_reason",
        "_tried_from",
        "_wait",
        "count",
    )

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        # How many there are to be now.
        self.count = self._before = least
        self._reason: CountReason = "start"
        self._changes: dict[CountReason, int] = {}
        # While others are tried: how many there were, and what these were worth.
        self._tried_from: tuple[int, float] | None = None
        self._direction = 1
        # Rounds until the next try, and after the next one in vain.
        self._wait, self._pause = 0, 1
        # Whether it may double: until a try was in vain, as TCP's slow start.
        self._is_starting = True
        self._is_backed_off = False

    def stats(self) -> DrainTaskLimit:
        """Return how many there are to be, and why."""
        changes = self._changes
        return DrainTaskLimit(
            drain_tasks=self.count,
            before=self._before,
            reason=self._reason,
            faster=changes.get("faster", 0),
            no_gain=changes.get("no_gain", 0),
            idle=changes.get("idle", 0),
            throttled=changes.get("throttled", 0),
        )

    def round(self, rate: float, use: float, *, is_throttled: bool) -> None:
        """A round has ended.

        Args:
            rate: Items per second that were handled.
            use: The part of the time that the drain tasks spent in cycles.
            is_throttled: Whether items are to be tried again.
        """
        if is_throttled:
            self._back_off()
            return
        self._is_backed_off = False
        if use < IDLE:
            self._tried_from, self._is_starting = None, True
            self._wait, self._pause = 0, 1
            self._change(self.count - 1, "idle")
        elif self._tried_from is not None:
            self._judge(rate, *self._tried_from)
        elif use > BUSY:
            if self._wait > 0:
                self._wait -= 1
            else:
                self._try(rate)

    def _back_off(self) -> None:
        self._tried_from = None
        self._wait = self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if not self._is_backed_off:
            self._is_backed_off = True
            self._change(self.count // 2, "throttled")

    def _try(self, rate: float) -> None:
        before = self.count
        step = before if self._is_starting else max(1, before // 4)
        for direction in (self._direction, -self._direction):
            count = before + (step if direction > 0 else -1)
            if self._least <= before + direction <= self._most:
                self._direction = direction
                self.count = min(self._most, count)
                self._tried_from = before, _worth(rate, before)
                return

    def _judge(self, rate: float, before: int, worth: float) -> None:
        self._tried_from = None
        tried, self.count = self.count, before
        if _worth(rate, tried) > worth:
            self._wait, self._pause = 0, 1
            self._change(tried, "faster" if tried > before else "no_gain")
            # What is known now is what the next try is compared with.
            self._try(rate)
            return
        self._is_starting = False
        # Next time the other way.
        self._direction = -self._direction
        self._wait = self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _change(self, count: int, why: CountReason) -> None:
        before = self.count
        self.count = max(self._least, min(self._most, count))
        if self.count != before:
            self._before, self._reason = before, why
            self._changes[why] = self._changes.get(why, 0) + 1


def _worth(rate: float, count: int) -> float:
    worth: float = rate / count**PRICE
    return worth


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
