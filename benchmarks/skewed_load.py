"""A hundred types, some of them hot, some of them dear, and a sink that takes its time.

The load that rebalancing is for: partitions differ in how many items come in and in
what an item costs, and all producers wait for whoever is behind.
"""

import asyncio
import bisect
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchqueue_async import BatchQueue

TYPES = 100
DRAIN_TASKS = 4
PRODUCERS = 16
MEAN_COST = 0.000_2
"""Seconds per item, over all items: 4 drain tasks can handle 20,000 in a second."""
MOST_OF_ONE_TYPE = 0.2
"""Of the cost: more than a quarter would be too much for any drain task."""

_SEED = 7
_MOST_TAKEN_BACK = 0.005
# Steps of this size fill the unit interval more evenly than any other's.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Workload:
    """How often each type comes, and what one item of it costs."""

    shares: tuple[float, ...]
    costs: tuple[float, ...]

    @property
    def mean_cost(self) -> float:
        """Seconds per item."""
        return sum(map(float.__mul__, self.shares, self.costs))

    @property
    def bound(self) -> float:
        """Items per second if all drain tasks are always at work: the perfect split."""
        return DRAIN_TASKS / self.mean_cost

    def loads(self, owners: Sequence[int]) -> list[float]:
        """Return each drain task's part of the cost under these owners."""
        loads = [0.0] * DRAIN_TASKS
        for share, cost, owner in zip(self.shares, self.costs, owners, strict=True):
            loads[owner] += share * cost / self.mean_cost
        return loads


def zipf(dear: float = 1.0) -> Workload:
    """Return a load with s = 1.0, in which half of the types cost `dear` times more."""
    costs = [1.0, dear] * (TYPES // 2)
    random.Random(_SEED).shuffle(costs)
    shares = _shuffled_shares(costs, _SEED)
    unit = MEAN_COST / sum(map(float.__mul__, shares, costs))
    return Workload(shares, tuple(cost * unit for cost in costs))


def with_other_hot_types(workload: Workload, seed: int) -> Workload:
    """Return the load of another hour: each type costs what it did."""
    return Workload(_shuffled_shares(workload.costs, seed), workload.costs)


def _shuffled_shares(costs: Sequence[float], seed: int) -> tuple[float, ...]:
    weights = [1 / rank for rank in range(1, TYPES + 1)]
    shares = [weight / sum(weights) for weight in weights]
    shuffled = random.Random(seed)
    while True:
        shuffled.shuffle(shares)
        loads = [*map(float.__mul__, shares, costs)]
        if max(loads) <= MOST_OF_ONE_TYPE * sum(loads):
            return tuple(shares)


class _Write(NamedTuple):
    started: float
    seconds: float
    items: int


@dataclass
class Sink:
    """Takes a time that grows with the batch; one write after the other, per type.

    If a timer fires late its next waits are shorter by that, up to a limit, so that the
    rounding of timers to milliseconds evens out.
    """

    cost: float
    written: int = 0
    _owed: float = 0.0
    _running: _Write | None = None

    async def consume(self, batch: list[object]) -> None:
        """Write a batch."""
        loop = asyncio.get_running_loop()
        self._owed += self.cost * len(batch)
        self._running = _Write(loop.time(), self._owed, len(batch))
        if self._owed > 0:
            await asyncio.sleep(self._owed)
        self._owed -= loop.time() - self._running.started
        self._owed = max(self._owed, -_MOST_TAKEN_BACK)
        self._running = None
        self.written += len(batch)

    def progress(self, now: float) -> float:
        """Return the items written, with the written part of a batch under way."""
        if self._running is None or self._running.seconds <= 0:
            return self.written
        started, seconds, items = self._running
        return self.written + items * min(1.0, (now - started) / seconds)


class Traffic:
    """Sixteen producers that fill a queue with a workload until it is closed."""

    def __init__(self, queue: BatchQueue[Any], workload: Workload) -> None:
        self.workload = workload
        self._queue = queue
        # One item per type, produced again and again: its making is not measured.
        self._items: list[Any] = [type(f"Type{n}", (), {})() for n in range(TYPES)]
        self._sinks = [Sink(cost) for cost in workload.costs]
        self._producing: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Register the sinks, type p in partition p, and start to produce."""
        for item, sink in zip(self._items, self._sinks, strict=True):
            self._queue.add_handler(type(item), sink)
        self._producing = [
            asyncio.create_task(self._produce(number / PRODUCERS))
            for number in range(PRODUCERS)
        ]

    async def end(self) -> None:
        """Close the queue, whatever waits in it, and wait for the producers."""
        await self._queue.shutdown(timeout=0)
        await asyncio.gather(*self._producing)

    def change(self, workload: Workload) -> None:
        """Make other types hot, from the next items on."""
        self.workload = workload

    def written(self) -> list[float]:
        """Return how many items of each type were written."""
        now = asyncio.get_running_loop().time()
        return [sink.progress(now) for sink in self._sinks]

    async def _produce(self, position: float) -> None:
        """Spread the types evenly, not at random: results don't vary by chance."""
        while True:
            limits = [*itertools.accumulate(self.workload.shares[:-1])]
            for _ in range(64):
                position = (position + _GOLDEN) % 1.0
                item = self._items[bisect.bisect(limits, position)]
                if not await self._queue.produce(item):
                    return
            # A producer that always finds room must let the others run.
            await asyncio.sleep(0)
