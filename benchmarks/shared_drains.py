"""A thousand queues on four shared drain tasks: python -m benchmarks.shared_drains.

One of them is saturated; the others get an item now and then, and each item's time
from `produce` to its handler is measured. Then nobody produces, and all together should
cost next to nothing. Takes about half a minute.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    SharedDrainTasks,
)

QUEUES = 1000
DRAIN_TASKS = 4
SHARED = SharedDrainTasks("benchmark", DrainTaskPolicy.fixed(DRAIN_TASKS))
RATE = 500
"""Items a second, for all the queues but the saturated one together."""
SECONDS = 6.0
SETTLING = 1.0
LATENCY_GOAL = 0.050
IDLE_GOAL = 0.01
# Bounded, as in a service: a larger batch would block the loop for all others.
BUSY_BATCH = 1000

Handle = Callable[[list[float]], Awaitable[None]]


class Latencies(NamedTuple):
    """Seconds from `produce` to the handler's first step."""

    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, samples: list[float]) -> "Latencies":
        """Sort the samples, and pick."""
        ordered = sorted(samples)
        last = len(ordered) - 1
        return cls(ordered[last // 2], ordered[last * 99 // 100], ordered[last])


async def returns_at_once(_: list[float]) -> None:
    """Keep the loop as busy as a handler can."""


async def waits_for_a_sink(_: list[float]) -> None:
    """Hold one of the drain tasks while something else works."""
    await asyncio.sleep(0.005)


class Traffic:
    """The queues, one of them saturated, and what the others' items waited."""

    def __init__(self, manager: BatchQueueManager) -> None:
        self.samples: list[float] = []
        self._manager = manager
        self._queues: list[BatchQueue[float]] = []

    async def open(self, busy: Handle) -> None:
        """Create the queues; the first is the busy one."""
        for number in range(QUEUES):
            config = BatchQueueConfig[float](
                drain_tasks=SHARED,
                consumer=self._handle if number else busy,
                max_batch=None if number else BUSY_BATCH,
            )
            name = f"queue {number}"
            self._queues.append(await self._manager.create(name, config))

    async def saturate(self) -> None:
        """Produce into the busy queue whenever it has room."""
        chunk = [0.0] * BUSY_BATCH
        accepted = 1
        while accepted:
            accepted = await self._queues[0].produce_many(chunk)
            # While there is room `produce_many` never waits, so nobody else has a turn.
            await asyncio.sleep(0)

    async def trickle(self, seconds: float) -> None:
        """Give an item to one of the others, at random times of the given rate."""
        chance = random.Random(1)
        until = due = time.perf_counter()
        until += seconds
        while due < until:
            due += chance.expovariate(RATE)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            queue = chance.choice(self._queues[1:])
            await queue.produce(time.perf_counter())

    async def _handle(self, batch: list[float]) -> None:
        now = time.perf_counter()
        self.samples.extend(now - produced for produced in batch)

    def handled_by_the_busy_one(self) -> int:
        """Return how much the saturated queue has got through."""
        return self._queues[0].stats().handled


async def beside_a_busy_queue(title: str, busy: Handle) -> None:
    """Measure and print one line."""
    async with BatchQueueManager() as manager:
        traffic = Traffic(manager)
        await traffic.open(busy)
        saturating = asyncio.create_task(traffic.saturate())
        await traffic.trickle(SETTLING)
        traffic.samples.clear()
        before = traffic.handled_by_the_busy_one()
        await traffic.trickle(SECONDS)
        rate = (traffic.handled_by_the_busy_one() - before) / SECONDS
        await manager.shutdown("queue 0")
        await saturating
        it = Latencies.of(traffic.samples)
    verdict = "yes" if it.worst <= LATENCY_GOAL else "NO"
    print(
        f"  {title:28}{len(traffic.samples):8}{it.p50 * 1e3:9.2f}{it.p99 * 1e3:9.2f}"
        f"{it.worst * 1e3:9.2f}{verdict:>8}{rate:16,.0f}"
    )


async def at_rest() -> None:
    """Measure what the idle queues cost, and print it."""
    async with BatchQueueManager() as manager:
        traffic = Traffic(manager)
        await traffic.open(returns_at_once)
        await traffic.trickle(SETTLING)
        await asyncio.sleep(SETTLING)
        started, used = time.perf_counter(), time.process_time()
        await asyncio.sleep(SECONDS)
        share = (time.process_time() - used) / (time.perf_counter() - started)
    verdict = "yes" if share < IDLE_GOAL else "NO"
    print(
        f"\n  idle, all together: {share:.3%} of a core "
        f"(less than {IDLE_GOAL:.0%}: {verdict})"
    )


async def measure() -> None:
    """Saturate in two ways, then rest."""
    goal = f"< {LATENCY_GOAL * 1e3:.0f}?"
    print(
        f"  {'the busy handler ...':28}{'items':>8}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'max ms':>9}{goal:>8}{'busy items/s':>16}"
    )
    await beside_a_busy_queue("... returns at once", returns_at_once)
    await beside_a_busy_queue("... waits 5 ms for a sink", waits_for_a_sink)
    await at_rest()


def main() -> None:
    """Measure everything, on asyncio's own loop."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    print(
        f"{QUEUES:,} queues on {DRAIN_TASKS} shared drain tasks, one saturated, the "
        f"others {RATE} items/s together; {SECONDS:.0f} s each, asyncio's loop"
    )
    asyncio.run(measure())


if __name__ == "__main__":
    main()
