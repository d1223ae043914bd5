"""How many drain tasks should be at work, found by trying: `DrainTaskPolicy.adaptive`.

Round by round it is told how many items were handled, and how busy the drain tasks
were. Where they are busy all the time it tries more of them, or fewer, and keeps what
raises items per second, discounted by their number, ``rate / count ** PRICE``: each of
them is a connection of the sink's. A try in vain makes the next one rarer. Where they
are idle for half of the time, one less is enough; what was enough before a time
without any items is tried first when they are back.

Where items have to be tried again, half of them work, as in TCP and Vector's adaptive
request concurrency, or as many as before where more were being tried. What lies
between that and what was refused is halved, try by try, as in BIC (Xu, Harfoush, Rhee,
Binary increase congestion control for fast long-distance networks, 2004), and what was
refused is tried again now and then; where it is taken, tries double again. A server
that counts calls per second refuses some at any number that uses it up: one drain task
more that is refused at times stays if it is worth it. For the other sources see
`adaptive_max_batch`.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from batchqueue_async._engine.handler_stats import CountReason, DrainTaskLimit

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts

PRICE: Final = 0.15
"""Twice as many drain tasks have to handle 11 % more items to be worth it."""
BUSY: Final = 0.9
IDLE: Final = 0.5
"""Parts of their time that drain tasks spend in cycles."""
LONGEST_PAUSE: Final = 16
"""Rounds between tries that were in vain: as late it is seen that a server recovers."""
PAUSES: Final = 3
"""A round is so many times as long as what a server asked to wait for in it."""
CALLS: Final = 8
"""Calls that a round has for each drain task, where these are busy all the time."""
LONGEST_ROUND: Final = 16
"""Intervals of rebalancing that a round lasts at most, whatever was asked for."""
SAME: Final = 0.7
"""A round that is worth more than that of what is known shows the same sink."""


class AdaptiveCount:
    """Says how many drain tasks own partitions; told what came of each round."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        # How many there are to be now.
        self.count = self._before = least
        self._reason: CountReason = "start"
        self._changes = dict.fromkeys(("faster", "no_gain", "idle", "throttled"), 0)
        # While others are tried: how many there were, and what these were worth.
        self._tried_from: tuple[int, float] | None = None
        self._direction = 1
        # Rounds until the next try, and after the next one in vain.
        self._wait, self._pause = 0, 1
        # Whether it may double: until a try was in vain, as TCP's slow start.
        self._is_starting = True
        self._is_backed_off = self._is_taken_back = False
        # The fewest that were refused, and what as many as now were worth.
        self._refused: int | None = None
        self._known: float | None = None
        # How many there were when items stopped coming.
        self._before_idle = 0

    @property
    def tries_more(self) -> bool:
        """Whether more are at work than before, to see whether they help."""
        return self._tried_from is not None and self.count > self._tried_from[0]

    def stats(self) -> DrainTaskLimit:
        return DrainTaskLimit(
            drain_tasks=self.count,
            before=self._before,
            reason=self._reason,
            **self._changes,
        )

    def round(self, rate: float, use: float, *, is_throttled: bool) -> None:
        worth = _worth(rate, self.count)
        if is_throttled and not self._is_worth_it(worth):
            self._back_off(rate)
            return
        self._is_backed_off = self._is_taken_back = False
        if use < IDLE and not is_throttled:
            self._give_back(rate)
        elif self._tried_from is not None:
            self._judge(rate, *self._tried_from, is_throttled=is_throttled)
        elif use > BUSY:
            self._compare(worth)
            if self._wait > 0:
                self._wait -= 1
            else:
                self._try(rate)

    def _is_worth_it(self, worth: float) -> bool:
        """Say whether refusals are the price of what this count handles."""
        if self._tried_from is None:
            return self._known is not None and worth > SAME * self._known
        before, known = self._tried_from
        if self.count < before:
            return worth > 0
        # Where it is more than one, a smaller step might do without refusals.
        return self.count == before + 1 and worth > known * (1 + 1 / (4 * before))

    def _back_off(self, rate: float) -> None:
        tried_from, self._tried_from = self._tried_from, None
        if tried_from is not None and self.count > tried_from[0]:
            # What there was before had not been refused.
            self._is_taken_back, self._is_starting = True, False
            self._refuse(tried_from[0])
        elif self._is_taken_back:
            # It may have been the rest of what was tried.
            self._is_taken_back = False
        elif not self._is_backed_off:
            self._is_backed_off, self._is_starting = True, False
            self._refused, self._direction = self.count, 1
            self._known = None
            self._change(self.count // 2, "throttled")
            # Those that were refused go on for a while as they were.
            self._wait, self._pause = 3, 1
        elif rate > 0:
            # Without an item that was handled nothing would be known.
            self._wait -= 1
            if self._wait <= 0:
                self._try_fewer(rate)

    def _try_fewer(self, rate: float) -> None:
        """Refusals went on: fewer may handle as much; else they are the price."""
        worth = _worth(rate, self.count)
        if self.count > self._least:
            self._tried_from = self.count, worth
            self.count = max(self._least, self.count // 2)
        else:
            self._known, self._refused = worth, None

    def _refuse(self, before: int) -> None:
        """Take a try back, and halve what lies below it until nothing does."""
        self._refused = self.count
        if self._refused == before + 1:
            # Fewer first, next time: they may have grown by luck.
            self._direction = -1
            self._rest()
        else:
            self._wait = 1
        self._change(before, "throttled")

    def _rest(self) -> None:
        """Wait before the next try, twice as long each time."""
        self._wait = self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _give_back(self, rate: float) -> None:
        self._tried_from, self._known = None, None
        if not rate:
            self._before_idle = max(self._before_idle, self.count)
        self._is_starting, self._direction = True, 1
        self._wait, self._pause = 0, 1
        self._change(self.count - 1, "idle")

    def _compare(self, worth: float) -> None:
        """Try at once where the sink has become another one."""
        if not worth:
            # No call has ended in this round, so it tells nothing.
            return
        known, self._known = self._known, worth
        # What is known may be of such a round, too: see `_judge`.
        if known and not SAME < worth / known < 1 / SAME:
            self._wait, self._pause = 0, 1
            self._is_starting = True
            self._direction = 1 if worth > known else -1

    def _try(self, rate: float) -> None:
        before = self.count
        for direction in (self._direction, -self._direction):
            if self._least <= before + direction <= self._most:
                if direction != self._direction:
                    self._direction, self._is_starting = direction, False
                self.count = self._more() if direction > 0 else self._fewer()
                self._tried_from = before, _worth(rate, before)
                return

    def _fewer(self) -> int:
        fewer = self.count // 2 if self._is_starting else self.count - 1
        return max(self._least, fewer)

    def _more(self) -> int:
        before = self.count
        more = before + (before if self._is_starting else max(1, before // 4))
        more, self._before_idle = max(more, self._before_idle), 0
        if self._refused is not None and self._refused > before:
            more = max(before + 1, (before + self._refused) // 2)
        return min(self._most, more)

    def _judge(
        self, rate: float, before: int, worth: float, *, is_throttled: bool
    ) -> None:
        self._tried_from = None
        tried, self.count = self.count, before
        if not is_throttled and self._refused is not None and tried >= self._refused:
            # It is taken now.
            self._refused = None
        if _worth(rate, tried) > worth:
            self._wait, self._pause = 0, 1
            self._known = _worth(rate, tried)
            self._change(tried, "faster" if tried > before else "no_gain")
            # What is known now is what the next try is compared with.
            self._try(rate)
            return
        self._known = worth
        self._is_starting = False
        # Next time the other way.
        self._direction = -self._direction
        if tried < before and self._refused is not None:
            # Others are tried where fewer are no better: a server may have recovered.
            self._wait = 0
        else:
            self._rest()

    def _change(self, count: int, why: CountReason) -> None:
        before = self.count
        self.count = max(self._least, min(self._most, count))
        if self.count != before:
            self._before, self._reason = before, why
            self._changes[why] += 1


def _worth(rate: float, count: int) -> float:
    worth: float = rate / count**PRICE
    return worth


class Demand:
    """Measures rounds, and has so many drain tasks own partitions as help."""

    def __init__(self, parts: Parts, least: int) -> None:
        self._parts = parts
        self.count = AdaptiveCount(least, len(parts.tasks.drain_tasks))
        # Whether a round is not over yet, as a server asked for a pause in it; and the
        # intervals of rebalancing that it has had.
        self._goes_on, self._intervals = False, 0
        self._counts = True
        # Seconds before the next round, while refusals of the one before go on.
        self._settles = 0.0
        self.begin_round(is_as_planned=True)

    def begin_round(self, *, is_as_planned: bool) -> None:
        """Measure from now on; it counts only where nothing was called off."""
        if self._goes_on:
            self._counts = self._counts and is_as_planned
            return
        self._calls = self._parts.delivery_counts.calls
        self._counts, self._intervals = is_as_planned, 0
        self._began = asyncio.get_running_loop().time()
        self._handled = self._handled_now()
        self._retried = self._parts.delivery_counts.retried
        self._parts.delivery_counts.retry_after = 0.0
        self._busy = [each.busy for each in self._parts.tasks.drain_tasks]

    def end_round(self) -> None:
        """Decide how many there are to be from now on, or let the round go on."""
        seconds = asyncio.get_running_loop().time() - self._began
        if seconds <= 0:
            return
        pause, use = self._parts.delivery_counts.retry_after, self._use(seconds)
        is_throttled = self._parts.delivery_counts.retried > self._retried
        self._intervals += 1
        self._goes_on = self._is_short(seconds, use, is_throttled=is_throttled)
        if self._goes_on:
            return
        if self._settles:
            self._settles = 0.0
            return
        # Refused batches keep partitions where they are: fewer are needed all the same.
        if not self._counts and not is_throttled:
            return
        before, rate = self.count.count, (self._handled_now() - self._handled) / seconds
        self.count.round(rate, use, is_throttled=is_throttled)
        self._parts.ownership.active = self.count.count
        if is_throttled and self._intervals > 1 and self.count.count != before:
            self._settles = pause

    def _is_short(self, seconds: float, use: float, *, is_throttled: bool) -> bool:
        """Whether the round has to go on before it tells anything."""
        pause = self._parts.delivery_counts.retry_after
        if seconds < max(PAUSES * pause, self._settles):
            return self._intervals < LONGEST_ROUND
        if is_throttled or use <= BUSY or not self._counts:
            return False
        # However long they take: with less of them, one more or less is the difference.
        calls = self._parts.delivery_counts.calls - self._calls
        return calls < CALLS * self.count.count

    @property
    def is_undisturbed(self) -> bool:
        """Whether a round goes on for more calls, with everything where it is to be."""
        is_refused = self._parts.delivery_counts.retry_after > 0
        return self._goes_on and self._counts and not is_refused

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
