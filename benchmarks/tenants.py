"""Quiet tenants beside one that floods: python -m benchmarks.tenants.

The sink takes 5 ms for a call, whatever the batch. A few tenants send an item now and
then, alone and beside one that sends a thousand times as much as they do together. What
counts is how long their items take, from `produce` to the sink's return, and how many
times as long as alone: the p99s, and their ratio. First in virtual time, where only the
sink takes time; then on asyncio's loop, with what producing and handing over take on
this machine, and whatever else runs on it. Takes about a minute and a half.
"""

import asyncio
import random
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartitionPolicy,
    by_key,
    fair_by,
)
from batchqueue_async.testing import VirtualTimeLoop
from benchmarks import ours
from benchmarks.scale import LoopFactory

QUIET = 5
RATE = 30
"""Items a second, of all quiet tenants together."""
FLOOD = 1000
"""How many times as much the flood sends."""
SECONDS = 3.0
ROUNDS = 3
CALL = 0.005
BULK = 100
"""The largest batch, where there is one: what the sink takes in one call."""
GOAL = 2.0
FOUR = PartitionPolicy.fixed(4)


class Item(NamedTuple):
    """What a tenant sends."""

    tenant: int
    made: float


Put = Callable[[Item], Awaitable[object]]
Sink = Callable[[list[Item]], Awaitable[None]]
Open = Callable[[Sink], AbstractAsyncContextManager[Put]]


def clock() -> float:
    """Return the running loop's time."""
    return asyncio.get_running_loop().time()


def tenant_of(item: Item) -> int:
    """Return the key."""
    return item.tenant


def queue_with(**settings: Any) -> Open:  # noqa: ANN401 - any setting
    """Return what opens the library's queue."""

    @asynccontextmanager
    async def opened(sink: Sink) -> AsyncIterator[Put]:
        config = BatchQueueConfig[Item](consumer=sink, **settings)
        async with BatchQueue("tenants", config) as queue:
            yield queue.produce
            # What the flood has left does not matter any more.
            await queue.shutdown(0.1)

    return opened


@asynccontextmanager
async def by_hand(sink: Sink) -> AsyncIterator[Put]:
    """A queue per tenant, and a loop that takes from one after the other."""
    queues: dict[int, asyncio.Queue[Item]] = {}
    news = asyncio.Event()

    async def put(item: Item) -> None:
        queue = queues.get(item.tenant)
        if queue is None:
            queue = queues[item.tenant] = asyncio.Queue(10_000)
        news.set()
        await queue.put(item)

    async def take() -> None:
        while True:
            await news.wait()
            news.clear()
            batch: list[Item] = []
            full = list(queues.values())
            while full and len(batch) < BULK:
                full = [queue for queue in full if not queue.empty()]
                batch += [queue.get_nowait() for queue in full]
            if batch:
                news.set()
                await sink(batch)

    async with ours.beside(take()):
        yield put


class Run:
    """One way of handing over, with what the quiet tenants' items took."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.flooded = 0

    async def sink(self, batch: list[Item]) -> None:
        """Store a batch."""
        await asyncio.sleep(CALL)
        now = clock()
        quiet = [now - item.made for item in batch if item.tenant]
        self.took += quiet
        self.flooded += len(batch) - len(quiet)

    async def trickle(self, put: Put) -> None:
        """Send the quiet tenants' items, at random times."""
        chance = random.Random(1)
        until = due = clock()
        until += SECONDS
        async with asyncio.TaskGroup() as sending:
            while due < until:
                due += chance.expovariate(RATE)
                await asyncio.sleep(max(0.0, due - clock()))
                tenant = chance.randint(1, QUIET)
                sending.create_task(as_task(put(Item(tenant, clock()))))

    async def flood(self, put: Put) -> None:
        """Send the flood's items every 5 ms; it may wait for room."""
        while True:
            started = clock()
            for _ in range(round(FLOOD * RATE * CALL)):
                await put(Item(0, started))
            await asyncio.sleep(max(0.0, started + CALL - clock()))


async def as_task(sending: Awaitable[object]) -> None:
    """Wait for it."""
    await sending


async def measured(opened: Open, *, is_flooded: bool) -> tuple[float, float]:
    """Return the quiet tenants' p99 in seconds, and the flood's items per second."""
    run = Run()
    async with opened(run.sink) as put:
        flood = asyncio.create_task(run.flood(put)) if is_flooded else None
        await run.trickle(put)
        rate = run.flooded / SECONDS
        if flood is not None:
            flood.cancel()
            await asyncio.wait({flood})
    took = sorted(run.took)
    return took[len(took) * 99 // 100], rate


WAYS: dict[str, Open] = {
    "fair_by": queue_with(selector=fair_by(tenant_of)),
    f"fair_by, max_batch={BULK}": queue_with(
        selector=fair_by(tenant_of), max_batch=BULK
    ),
    "by_key": queue_with(selector=by_key(tenant_of), partitions=FOUR),
    f"by_key, max_batch={BULK}": queue_with(
        selector=by_key(tenant_of), partitions=FOUR, max_batch=BULK
    ),
    f"asyncio.Queue per tenant, {BULK}": by_hand,
}


async def both(opened: Open) -> tuple[float, float, float]:
    """Return the p99 alone and flooded, one after the other, and the flood's rate."""
    alone, _ = await measured(opened, is_flooded=False)
    flooded, rate = await measured(opened, is_flooded=True)
    return alone, flooded, rate


def show(title: str, loop: LoopFactory, rounds: int) -> None:
    """Measure everybody on one kind of loop."""
    print(
        f"  {title:30}{'alone, p99 ms':>14}{'flooded, p99 ms':>17}{'ratio':>9}"
        f"{f'<= {GOAL:.0f}?':>7}{'flood items/s':>15}"
    )
    turns = [
        {name: turn(opened, loop) for name, opened in WAYS.items()}
        for _ in range(rounds)
    ]
    for name in WAYS:
        found = [each[name] for each in turns]
        alone, flooded, rate = map(statistics.median, zip(*found, strict=True))
        ratio = statistics.median(each[1] / each[0] for each in found)
        verdict = "yes" if ratio <= GOAL else "NO"
        print(
            f"  {name:30}{alone * 1e3:14.2f}{flooded * 1e3:17.2f}{ratio:7.2f} x"
            f"{verdict:>7}{rate:15,.0f}"
        )


def turn(opened: Open, loop: LoopFactory) -> tuple[float, float, float]:
    """Measure one of them, alone and flooded."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(both(opened))


def main() -> None:
    """Measure everybody."""
    print(
        f"{QUIET} tenants with {RATE} items/s together, one with {FLOOD * RATE:,}/s; "
        f"a sink of {CALL * 1e3:.0f} ms per call; {SECONDS:.0f} s, medians of {ROUNDS}"
    )
    show("in virtual time", VirtualTimeLoop, 1)
    show("on asyncio's loop", asyncio.SelectorEventLoop, ROUNDS)


if __name__ == "__main__":
    main()
