"""Finds by trying how many drain tasks should work: `DrainTaskPolicy.adaptive`.

Each round tells it how many items were handled and how busy the drain tasks were. If
they were busy all the time it tries more of them, or fewer, and keeps the count with
the higher worth: items per second, discounted by the count, ``rate / count ** PRICE``,
since each drain task costs the sink a connection. After a try in vain it waits longer
before the next one. If they were idle for half of the time it takes one away; the count
before a time without any items is tried first when items come again.

If the sink refuses items, so that they have to be tried again, the count is halved, as
in TCP and Vector's adaptive request concurrency; a larger count that was being tried is
taken back instead. The range between the count before and the refused one is halved,
try by try, as in BIC (Xu, Harfoush, Rhee, Binary increase congestion control for fast
long-distance networks, 2004). A refused count is tried again now and then, and is
forgotten as a bound once it works. A server with a limit of calls per second refuses
some at any count that reaches the limit: one drain task more that is refused at times
is kept if it is worth it. For the other sources see `adaptive_max_batch`.
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
"""Drain tasks are busy above `BUSY`, idle below `IDLE`: parts of time in cycles."""
LONGEST_PAUSE: Final = 16
"""At most so many rounds between tries: a server's recovery may be seen that late."""
PAUSES: Final = 3
"""A round lasts at least so many times the pause that a server asked for in it."""
CALLS: Final = 8
"""Calls per drain task that a round waits for, while they are busy all the time."""
LONGEST_ROUND: Final = 16
"""Rebalancing intervals that a round lasts at most for a pause that was asked for."""
SAME: Final = 0.7
"""If worth changes by less than this factor, the sink counts as unchanged."""


class AdaptiveCount:
    """Decides how many drain tasks own partitions, from the result of each round."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        # How many drain tasks are to own partitions now.
        self.count = self._before = least
        self._reason: CountReason = "start"
        self._changes = dict.fromkeys(("faster", "no_gain", "idle", "throttled"), 0)
        # While another count is tried: the count before the try, and its worth.
        self._tried_from: tuple[int, float] | None = None
        self._direction = 1
        # Rounds left before the next try; and the last wait, doubled by a failed try.
        self._wait, self._pause = 0, 1
        # Whether a try may double the count: until one fails, as in TCP's slow start.
        self._is_starting = True
        self._is_backed_off = self._is_taken_back = False
        # The smallest count that was refused, and the last worth of the present count.
        self._refused: int | None = None
        self._known: float | None = None
        # The count when items stopped coming.
        self._before_idle = 0

    @property
    def tries_more(self) -> bool:
        """Whether a larger count than before is being tried."""
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
        """Whether this count handles so much that its refusals are acceptable."""
        if self._tried_from is None:
            return self._known is not None and worth > SAME * self._known
        before, known = self._tried_from
        if self.count < before:
            return worth > 0
        # After a larger step, a smaller one might do without refusals.
        return self.count == before + 1 and worth > known * (1 + 1 / (4 * before))

    def _back_off(self, rate: float) -> None:
        tried_from, self._tried_from = self._tried_from, None
        if tried_from is not None and self.count > tried_from[0]:
            # Go back to the count before the try: that was not refused.
            self._is_taken_back, self._is_starting = True, False
            self._refuse(tried_from[0])
        elif self._is_taken_back:
            # These refusals may still come from the try that was taken back.
            self._is_taken_back = False
        elif not self._is_backed_off:
            self._is_backed_off, self._is_starting = True, False
            self._refused, self._direction = self.count, 1
            self._known = None
            self._change(self.count // 2, "throttled")
            # Drain tasks with refused batches go on for a while, so wait.
            self._wait, self._pause = 3, 1
        elif rate > 0:
            # A round in which no item was handled tells nothing.
            self._wait -= 1
            if self._wait <= 0:
                self._try_fewer(rate)

    def _try_fewer(self, rate: float) -> None:
        """Refusals went on: try half the count; at the least count, accept them."""
        worth = _worth(rate, self.count)
        if self.count > self._least:
            self._tried_from = self.count, worth
            self.count = max(self._least, self.count // 2)
        else:
            self._known, self._refused = worth, None

    def _refuse(self, before: int) -> None:
        """Take a try back; the next ones halve the range below it until it is empty."""
        self._refused = self.count
        if self._refused == before + 1:
            # Try fewer next time: the count may have grown that large by luck.
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
        """Try at once if worth has changed so much that the sink must have changed."""
        if not worth:
            # No call has ended in this round, so it tells nothing.
            return
        known, self._known = self._known, worth
        # `known` is 0 if no call ended in its round: `_judge` keeps that, too.
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
            # The sink takes now what it had refused.
            self._refused = None
        if _worth(rate, tried) > worth:
            self._wait, self._pause = 0, 1
            self._known = _worth(rate, tried)
            self._change(tried, "faster" if tried > before else "no_gain")
            # Begin the next try at once: this round is what it is compared with.
            self._try(rate)
            return
        self._known = worth
        self._is_starting = False
        # Next time try the other direction.
        self._direction = -self._direction
        if tried < before and self._refused is not None:
            # Fewer were no better, so try more at once: the server may have recovered.
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


class AdaptiveRounds:
    """Measures rounds, and sets by them how many drain tasks own partitions."""

    def __init__(self, parts: Parts, least: int) -> None:
        self._parts = parts
        self.count = AdaptiveCount(least, len(parts.tasks.drain_tasks))
        # Whether the round goes on, for a server's pause or for more calls; and for how
        # many rebalancing intervals it has lasted.
        self._goes_on, self._intervals = False, 0
        self._counts = True
        # If not 0: least seconds of the next round, which old refusals make not count.
        self._settles = 0.0
        self.begin_round(is_as_planned=True)

    def begin_round(self, *, is_as_planned: bool) -> None:
        """Measure a round; it counts only if the partitions moved as planned."""
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
        """Decide how many drain tasks own partitions next, or let the round go on."""
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
        # A round with refusals counts even so: refused batches hold handoffs up.
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
        # However long calls take: among few, one more or less decides the rate.
        calls = self._parts.delivery_counts.calls - self._calls
        return calls < CALLS * self.count.count

    @property
    def is_undisturbed(self) -> bool:
        """Whether the round goes on for more calls, with all partitions as planned."""
        is_refused = self._parts.delivery_counts.retry_after > 0
        return self._goes_on and self._counts and not is_refused

    def _handled_now(self) -> int:
        handled = attrgetter("accounts.handled")
        return sum(map(handled, self._parts.partitions))

    def _use(self, seconds: float) -> float:
        active = self._parts.tasks.drain_tasks[: self._parts.ownership.active]
        used = 0.0
        for drain_task, before in zip(active, self._busy, strict=False):
            # `busy` lacks the cycle that runs now: a drain task in one counts as busy.
            part = (drain_task.busy - before) / seconds
            used += 1.0 if drain_task.is_in_cycle else min(1.0, part)
        return used / len(active)
