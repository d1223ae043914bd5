"""How large a handler's batches should be, found by trying: `max_batch="auto"`.

A call takes a fixed time, and some for each of its items. Larger batches spread the
fixed time, with less and less to gain, and make items wait. So what is maximised is
items per second, discounted by size, ``rate / size ** PRICE``: at the maximum, a batch
twice as large would bring 2 % more. That is Kleinrock's power with an exponent (Power
and deterministic rules of thumb for probabilistic problems in computer communications,
1979).

The limit is changed as others change a sending rate or a concurrency:

* Two sizes are tried, one below the limit and one above it, and the limit goes up the
  slope that they show (Dong and others, PCC Vivace, 2018). Where the slope's sign
  changes, steps get smaller (Kesten, Accelerated stochastic approximation, 1958).
* Batches that the limit did not cut tell nothing of it, so it never grows without load;
  calls that suddenly take twice as long lower it by as much, by half at most (Netflix's
  concurrency-limits, Gradient2).
* If a handler is told to wait, or fails, the limit is halved, once for all batches that
  were cut before (Vector's adaptive request concurrency; TCP). A size that has failed
  keeps the limit below it for a while, longer each time (CUBIC, RFC 9438).

Smaller batches do not help if the server counts calls. So the limit is halved again
only for failures without a success in between; else the time that failures and pauses
cost counts as time of the calls, and the slope says where to go.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import Final

from batchqueue_async._engine.handler_stats import BatchLimit, LimitReason
from batchqueue_async._policies.retry import (
    PartialFailure,
    asks_for_pause,
    pause_asked_for,
)

START: Final = 32
"""The first limit."""
PRICE: Final = 1 / 32
"""What a batch twice as large has to bring at least: 2 % more items per second."""
CALLS: Final = 6
"""Calls of one size that are looked at together; their median counts.

An even number: if every second call, or third, takes long, both trials have some.
"""
SPREAD: Final = sqrt(2)
"""The sizes that are tried are the limit divided by this, and times this."""
GAIN: Final = 4.0
"""Doublings of the limit for a slope of 1, before its sign changes; one at most."""
MOST_FLIPS: Final = 7
SLOWER: Final = 2.0
"""Calls are slower if they take so many times as long per item as they did before."""
LONGEST_REST: Final = 64
"""Calls without a trial at most, after trials that have changed little."""
SHORTEST_CEILING: Final = 2
LONGEST_CEILING: Final = 64
"""Rounds of two trials for which the limit stays below a size that has failed."""
PAID_BACK: Final = 128
"""A ceiling ends at the latest when calls took so many times the pause asked for."""

_STEADY: Final = 0.1
# A ceiling as a part of the size that failed; and the next ceiling as a part of that.
_BELOW: Final = 0.9
_ABOVE: Final = 1.25
# What a batch costs the queue itself, in seconds: without it a handler that takes no
# time but for its items would get them one by one.
_OVERHEAD: Final = 50e-6


class AdaptiveLimit:
    """Decides how many items a batch may have, from the result of each call.

    It reads no clock and waits for nothing: its caller tells it what calls took.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # As a float: small steps add up.
        self._limit = float(min(START, most))
        # What a batch has at most now.
        self.size = 0
        self._before = round(self._limit)
        self._reason: LimitReason = "start"
        self._changes = dict.fromkeys(
            ("faster", "no_gain", "slower", "throttled", "failed"), 0
        )
        # Which of the two sizes is tried, 0 or 1; None at rest.
        self._trial: int | None = None
        self._first_rate = 0.0
        # Seconds of each call of this size so far; and those that failures have cost.
        self._seconds: list[float] = []
        self._debt = 0.0
        self._slope = 0.0
        self._flips = 0
        self._rest = self._rest_for = 0
        # Seconds for each item, as of late.
        self._usual: float | None = None
        # Failures since the last success; whether the limit was halved in this round.
        self._in_a_row = 0
        self._is_backed_off = False
        self._ceiling, self._ceiling_for = most, 0
        self._patience, self._lift = SHORTEST_CEILING, _ABOVE
        # Seconds of calls before a refused size may be tried again in any case.
        self._owed = inf
        # The largest batch that was handled since the last failure.
        self._passed = 0
        # `_limit`, `_before`, `_reason` if the call after a failure does not fail.
        self._undo: tuple[float, int, LimitReason] | None = None
        self._try(0)

    @property
    def limit(self) -> int:
        """The limit found so far; sizes are tried around it."""
        return round(self._limit)

    def stats(self) -> BatchLimit:
        return BatchLimit(
            max_batch=self.limit,
            before=self._before,
            reason=self._reason,
            **self._changes,
        )

    def called(self, size: int, seconds: float, error: BaseException | None) -> None:
        seconds += _OVERHEAD
        trouble = _trouble(error)
        if trouble is not None:
            self._debt += seconds + pause_asked_for(error)
            self._in_a_row += 1
            if size <= self.size and (self._in_a_row > 1 or not self._is_backed_off):
                self._owed = PAID_BACK * pause_asked_for(error) or inf
                self._fall_back(size, trouble)
            return
        self._in_a_row = 0
        self._owed -= seconds
        self._passed = max(self._passed, size)
        if self._undo is not None:
            self._limit, self._before, self._reason = self._undo
            self._undo = None
            self._settle(0)
            return
        if size != self.size:
            # The batch was cut by something else, or before the limit changed.
            return
        if self._trial is None:
            self._rest -= 1
            if self._rest <= 0 or (self._owed <= 0 and self._ceiling < self._most):
                self._try(0)
            return
        self._seconds.append(seconds)
        # An odd number of calls, so that a regular pattern does not always hit the same
        # size.
        if len(self._seconds) >= CALLS + (self._trial == 0):
            self._end_trial()

    def _try(self, trial: int) -> None:
        """Let calls have the lower (0) or, second in a round, the upper (1) size."""
        self._trial = trial
        self._seconds, self._debt = [], 0.0
        self.size = self._above if trial else min(self._below, self._above)

    @property
    def _below(self) -> int:
        return max(1, round(self._limit / SPREAD))

    @property
    def _above(self) -> int:
        return min(self._highest, max(self._below + 1, round(self._limit * SPREAD)))

    @property
    def _highest(self) -> int:
        return min(self._most, self._ceiling)

    def _end_trial(self) -> None:
        in_order, size = sorted(self._seconds[-CALLS:]), self.size
        median = sum(in_order[CALLS // 2 - 1 : CALLS // 2 + 1]) / 2
        rate = log(size / (median + self._debt / CALLS))
        if self._trial == 0:
            self._first_rate = rate
            self._try(1)
            if self.size > size:
                return
            # There is no choice: one size is all that is allowed.
            self._trial = 1
        self._end_round(rate)

    def _end_round(self, rate: float) -> None:
        distance = log(self.size / min(self._below, self.size))
        seconds = exp(-(rate + self._first_rate) / 2)
        usual, self._usual = self._usual, seconds
        if usual is not None and seconds > SLOWER * usual and self._rest_for:
            self._change(self._limit * max(0.5, usual / seconds), "slower")
            self._usual = None
            self._settle(0)
            return
        if usual is not None and self._rest_for:
            self._usual = usual * 0.8 + seconds * 0.2
        self._is_backed_off = self._is_backed_off and self._debt > 0
        self._lift_ceiling()
        if not distance:
            self._settle(LONGEST_REST if self._most == self._ceiling else 0)
            return
        self._climb((rate - self._first_rate) / distance - PRICE)

    def _climb(self, slope: float) -> None:
        if slope * self._slope < 0:
            self._flips = min(self._flips + 1, MOST_FLIPS)
        elif abs(slope) > 2 * PRICE:
            # The slope is steep again, so steps get larger.
            self._flips = max(self._flips - 1, 0)
        self._slope = slope
        step = min(1.0, max(-1.0, GAIN * slope / (1 + self._flips)))
        before = self._limit
        self._change(before * 2**step, "faster" if step > 0 else "no_gain")
        is_steady = abs(log(self._limit / before)) < _STEADY
        rest = max(2 * CALLS, 2 * self._rest_for)
        if step > 0 and self._ceiling < self._most:
            # The ceiling forbids the next step up, so there is nothing to try until it
            # rises.
            rest = LONGEST_REST
        self._settle(min(LONGEST_REST, rest) if is_steady else 0)

    def _settle(self, calls: int) -> None:
        """Go on with the limit itself for some calls, then try again."""
        self._rest = self._rest_for = calls
        if not calls:
            self._try(0)
            return
        self._trial = None
        self._debt = 0.0
        self.size = max(1, min(self._highest, round(self._limit)))

    def _fall_back(self, size: int, why: LimitReason) -> None:
        """Halve the limit at once: the failed batch may be tried again with that."""
        limit, passed = self._limit, self._passed
        self._is_backed_off, self._passed = True, 0
        if size > passed:
            self._undo = (min(limit, passed), self.limit, why) if passed else None
            self._stay_below(size)
        else:
            # A batch as large was handled meanwhile, so the size may not be to blame.
            self._undo = limit, self._before, self._reason
        self._change(size / 2, why)
        debt = self._debt
        self._settle(0)
        self._debt = debt

    def _stay_below(self, size: int) -> None:
        """Stay below a size for a while: longer, unless the call before failed, too."""
        if self._in_a_row == 1:
            self._patience = min(2 * self._patience, LONGEST_CEILING)
        self._ceiling = max(1, int(_BELOW * size))
        self._ceiling_for, self._lift = self._patience, _ABOVE
        self._usual = None
        self._flips, self._slope = 0, 0.0

    def _lift_ceiling(self) -> None:
        """Let the limit grow again beyond a failed size: slowly first, then quickly."""
        if self._ceiling >= self._most:
            return
        self._ceiling_for -= 1
        if self._ceiling_for <= 0 or self._owed <= 0:
            self._ceiling = min(self._most, 1 + int(self._lift * self._ceiling))
            self._lift *= self._lift
            if self._ceiling == self._most:
                self._patience = SHORTEST_CEILING

    def _change(self, limit: float, why: LimitReason) -> None:
        before = self.limit
        self._limit = min(float(self._highest), max(1.0, limit))
        if self.limit != before:
            self._before, self._reason = before, why
            self._changes[why] += 1


def _trouble(error: BaseException | None) -> LimitReason | None:
    """Return what an error says of the batch's size; None if nothing."""
    if error is None:
        return None
    if asks_for_pause(error):
        return "throttled"
    return None if isinstance(error, PartialFailure) else "failed"
