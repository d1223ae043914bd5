"""The Java original's own benchmark of rebalancing, with our drain tasks.

Four drain tasks, sixteen producers that wait for room, a hundred types: 20 of them come
24 times as often as the rarest, 30 eight times, 20 four times. The original pins types
by the hash of their class, so chance decides how uneven the drain threads are; when its
figures were taken, they were 1.30. Here types are registered in an order by which the
drain tasks are as uneven as that. In the original's order they would be even at once
(1.03), for partitions are given to types in turn.

Times are a tenth of the original's, and so are the buffers.
"""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
)
from benchmarks.scale import LoopFactory, Scale
from benchmarks.skewed_load import Sink
from benchmarks.table import Column, Table
from benchmarks.turns import Turns

WEIGHTS = [24] * 20 + [8] * 30 + [4] * 20 + [1] * 30
DRAIN_TASKS = 4
PRODUCERS = 16
INTERVAL = 0.2
# With this seed shuffled types make loads of 192, 193, 195 and 250: 21 % to gain.
_UNEVEN = 516
_COST = 0.000_05
_STEPS = 50
_AT_ONCE = 50

AWAITING = "handlers await a sink"
COMPUTING = "handlers compute"
ORIGINAL = "the original, by its own account"
GAIN = "gained"
AFTER = "max/min, rebalanced"

Consume = Callable[[list[Any]], Awaitable[None]]


async def compute(batch: list[Any]) -> None:
    """Keep the processor busy for each item, as the original's handlers do."""
    value = 1
    for _ in range(_STEPS * len(batch)):
        value = value * 6_364_136_223_846_793_005 + 1 & 0xFFFF_FFFF_FFFF_FFFF


HANDLERS: dict[str, Callable[[], Consume]] = {
    AWAITING: lambda: Sink(_COST).consume,
    COMPUTING: lambda: compute,
}


@dataclass
class Run:
    """One way of handling, with rebalancing or without; what came of its samples."""

    make: Callable[[], Consume]
    rebalancing: Rebalancing | None
    ratios: dict[float, float] = field(default_factory=dict)
    """Items of the busiest drain task by those of the idlest, by each sample's rate."""

    def measure(self, loop: LoopFactory, settling: float, seconds: float) -> float:
        """Return items handled per second."""
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(self._measure(settling, seconds))

    async def _measure(self, settling: float, seconds: float) -> float:
        config = BatchQueueConfig[Any](
            drain_tasks=DrainTaskPolicy.fixed(DRAIN_TASKS),
            partitions=PartitionPolicy.adaptive(),
            buffer_size=200,
            rebalancing=self.rebalancing,
        )
        handled: Counter[str] = Counter()
        async with BatchQueue("benchmark", config) as queue:
            producing = self._produce(queue, handled)
            await asyncio.sleep(settling)
            handled.clear()
            started = time.perf_counter()
            await asyncio.sleep(seconds)
            rate = handled.total() / (time.perf_counter() - started)
            self.ratios[rate] = max(handled.values()) / min(handled.values())
            await queue.shutdown(timeout=0)
            await producing
        return rate

    def _produce(
        self, queue: BatchQueue[Any], handled: Counter[str]
    ) -> asyncio.Future[Any]:
        items: list[Any] = [type(f"Type{n}", (), {})() for n in range(len(WEIGHTS))]
        for number in shuffled(list(range(len(WEIGHTS))), _UNEVEN):
            queue.add_handler(type(items[number]), counted(self.make(), handled))
        often = [[items[n]] * weight for n, weight in enumerate(WEIGHTS)]
        slots = shuffled([item for each in often for item in each], 42)
        starts = range(0, len(slots), len(slots) // PRODUCERS)[:PRODUCERS]
        return asyncio.gather(
            *(produce(queue, slots[start:] + slots[:start]) for start in starts)
        )


def shuffled(values: list[Any], seed: int) -> list[Any]:
    """Return the values in another order, the same one each time."""
    random.Random(seed).shuffle(values)
    return values


def counted(consume: Consume, handled: Counter[str]) -> Consume:
    """Return a handler that counts items by the drain task that brings them."""

    async def handle(batch: list[Any]) -> None:
        await consume(batch)
        task = asyncio.current_task()
        handled[task.get_name() if task else ""] += len(batch)

    return handle


async def produce(queue: BatchQueue[Any], slots: list[Any]) -> None:
    """Produce these items over and over, until the queue is closed."""
    while True:
        for start in range(0, len(slots), _AT_ONCE):
            for item in slots[start : start + _AT_ONCE]:
                if not await queue.produce(item):
                    return
            # A producer that always finds room must let the others run.
            await asyncio.sleep(0)


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare static ownership with rebalancing, in turns."""
    found = Table(
        "original skew",
        f"Rebalancing, as the original measures it: {len(WEIGHTS)} types, "
        f"{DRAIN_TASKS} drain tasks, {PRODUCERS} producers",
        [
            Column("what"),
            Column("million/s, static", "millions"),
            Column("million/s, rebalanced", "millions"),
            Column(GAIN, "percent"),
            Column("max/min, static", "times"),
            Column(AFTER, "times"),
        ],
    )
    settling, seconds = scale.of(4 * INTERVAL, 2 * INTERVAL), scale.of(1.0, 0.6)
    for what in scale.of((AWAITING, COMPUTING), (AWAITING,)):
        make = HANDLERS[what]
        static, moving = Run(make, None), Run(make, Rebalancing(interval=INTERVAL))
        samples = turns.take(
            {
                state: partial(run.measure, loop, settling, seconds)
                for state, run in (("static", static), ("rebalanced", moving))
            },
            warm_up=False,
            rounds=scale.of(3, 1),
        )
        before, after = samples["static"], samples["rebalanced"]
        found.add(
            what,
            before.median,
            after.median,
            after.beside(before) - 1,
            statistics.median(static.ratios[rate] for rate in before.values),
            statistics.median(moving.ratios[rate] for rate in after.values),
        )
    found.add(ORIGINAL, 7_211_794.0, 8_729_310.0, 0.21, 1.30, 1.04)
    return found
