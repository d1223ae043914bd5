"""What calls of a real handler take, measured, as a cost for `simulate`."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression
from typing import Any, Final

from batchqueue_async import HandlerLike
from batchqueue_async._functions import attribute_of, taker_of
from batchqueue_async._loop_time import kept_by
from batchqueue_async._policies.handler_checks import require_handler
from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_instance,
    require_int,
    require_iterable,
)

_SEED = 17
_CALLS: Final = "_batchqueue_simulated_calls"


@dataclass(frozen=True)
class Sample:
    """One call that was measured."""

    size: int
    """The items of its batch."""
    seconds: float
    """What it took."""
    at_once: int = 1
    """How many calls ran at the same time, itself included."""

    def __post_init__(self) -> None:
        require_int("size", self.size, at_least=0)
        require_at_least("seconds", self.seconds, 0)
        require_int("at_once", self.at_once, at_least=1)


class Cost:
    """Seconds of a call as they were measured: a `handler_cost`.

    Calls differ from each other as the measured ones did, at random but the same in
    each simulation: with a mean alone queues would come out too short. Between measured
    sizes it interpolates, beyond the largest it follows the line through the means.
    Where calls were measured together, one that begins while others run takes as long
    as those did.

    Args:
        samples: Calls that were measured, of one size or several.

    Raises:
        ValueError: There are no samples.
        TypeError: They are no samples.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        require_iterable("samples", samples, "an iterable of Sample")
        self.samples: tuple[Sample, ...] = tuple(samples)
        if not self.samples:
            refuse("samples", "at least one", self.samples)
        for each in self.samples:
            require_instance("samples", each, Sample, "of Sample alone")
        levels = sorted({each.at_once for each in self.samples})
        self._levels = levels
        self._measured = [
            _Sizes(each for each in self.samples if each.at_once == level)
            for level in levels
        ]

    @property
    def call(self) -> float:
        """Seconds of a call, whatever it has: the intercept of a straight line."""
        return self._measured[0].straight()[0]

    @property
    def item(self) -> float:
        """Seconds more for each item: the slope of a straight line."""
        return self._measured[0].straight()[1]

    def __call__(self, batch: Sequence[Any]) -> float:
        """Return the seconds of a call for this batch, in a simulation."""
        calls = self._calls_here()
        now = asyncio.get_running_loop().time()
        calls.ends = [end for end in calls.ends if end > now]
        at_once = len(calls.ends) + 1
        place = min(bisect_left(self._levels, at_once), len(self._levels) - 1)
        seconds = self._measured[place].seconds(len(batch), calls.random.random())
        calls.ends.append(now + seconds)
        return seconds

    def _calls_here(self) -> _Calls:
        """Return those of this simulation: each has a loop of its own.

        Another one may have been before it, or be beside it on another thread.
        """
        loop = asyncio.get_running_loop()
        known: dict[Cost, _Calls] = kept_by(loop, _CALLS, dict)
        if self not in known:
            known[self] = _Calls()
        return known[self]


class _Calls:
    """The calls of one simulation."""

    def __init__(self) -> None:
        self.random = random.Random(_SEED)
        # When those end that run now, by the simulation's clock.
        self.ends: list[float] = []


class _Sizes:
    """What calls of each size took, where as many ran at the same time."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        by_size: dict[int, list[float]] = {}
        for each in samples:
            by_size.setdefault(each.size, []).append(each.seconds)
        self._sizes = sorted(by_size)
        self._seconds = [sorted(by_size[size]) for size in self._sizes]

    def straight(self) -> tuple[float, float]:
        """Return the line through the means: seconds of a call, and of an item."""
        means = [fmean(each) for each in self._seconds]
        if len(means) == 1:
            return means[0], 0.0
        found = linear_regression(self._sizes, means)
        return max(0.0, found.intercept), max(0.0, found.slope)

    def seconds(self, size: int, part: float) -> float:
        """Return the seconds that a part, 0 to 1, of calls of a size do not exceed."""
        sizes = self._sizes
        upper = bisect_left(sizes, size)
        if upper == len(sizes):
            per_item = self.straight()[1]
            return self._measured(-1, part) + per_item * (size - sizes[-1])
        if sizes[upper] == size or not upper:
            return self._measured(upper, part)
        low = self._measured(upper - 1, part)
        way = (size - sizes[upper - 1]) / (sizes[upper] - sizes[upper - 1])
        return low + way * (self._measured(upper, part) - low)

    def _measured(self, place: int, part: float) -> float:
        seconds = self._seconds[place]
        return seconds[int(part * len(seconds))]


async def measure(
    handler: HandlerLike[Any],
    items: Sequence[Any],
    *,
    sizes: Iterable[int] = (1, 10, 100, 1_000),
    calls: int = 20,
    at_once: int = 1,
) -> Cost:
    """Call a handler with batches of several sizes, and time it.

    It is called as in production, its `on_open` before and its `on_close` at the end,
    so what it writes is written: have it write to a table, or a server, that is for
    this. Sizes take turns, after one call that is not counted, which may connect.

    Args:
        handler: As a queue would have it.
        items: What batches are made of; they are repeated as often as need be.
        sizes: Items of a batch.
        calls: Calls of each size.
        at_once: How many calls are measured at the same time, and each power of two
            below: as many as there may be drain tasks.

    Returns:
        The cost, to be given to `simulate` or `plan`.

    Raises:
        TypeError, ValueError: An argument is wrong. What the handler raises is raised.
    """
    require_handler("handler", handler)
    require_int("calls", calls, at_least=1)
    require_int("at_once", at_once, at_least=1)
    require_iterable("sizes", sizes, "an iterable, as in (1, 10, 100)")
    require_instance("items", items, Sequence, "a sequence, such as a list")
    chosen = sorted({*sizes})
    if not chosen or not items:
        refuse("items" if chosen else "sizes", "at least one", chosen and items)
    for size in chosen:
        require_int("sizes", size, at_least=1)
    levels = [level for level in (1 << n for n in range(16)) if level < at_once]
    samples: list[Sample] = []
    await _call_hook(handler, "on_open")
    try:
        await _timed(handler, _batch(items, chosen[0]))
        for _ in range(calls):
            for size in chosen:
                for level in (*levels, at_once):
                    batches = [_batch(items, size) for _ in range(level)]
                    took = await asyncio.gather(
                        *(_timed(handler, each) for each in batches)
                    )
                    samples += (Sample(size, seconds, level) for seconds in took)
    finally:
        await _call_hook(handler, "on_close")
    return Cost(samples)


async def _call_hook(handler: HandlerLike[Any], name: str) -> None:
    hook = attribute_of(handler, name)
    answer = hook() if callable(hook) else None
    if inspect.isawaitable(answer):
        await answer


async def _timed(handler: HandlerLike[Any], batch: list[Any]) -> float:
    consume: Any = taker_of(handler)
    began = time.perf_counter()
    answer = consume(batch)
    if inspect.isawaitable(answer):
        await answer
    return time.perf_counter() - began


def _batch(items: Sequence[Any], size: int) -> list[Any]:
    times = -(-size // len(items))
    return [*items[:size]] if times == 1 else ([*items] * times)[:size]
