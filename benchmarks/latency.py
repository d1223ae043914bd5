"""From `produce` to the handler: how long one item takes, and what that costs."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from batchqueue_async import BatchQueue, SyncBatchQueue
from benchmarks.ours import ONE_PARTITION
from benchmarks.pacing import Send, produce_on_loop, produce_on_thread
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Samples, Turns

RATES = (10, 1_000, 100_000)
IN_THE_GOALS = 1_000
BEYOND = "p99 beyond the loop's, in bare p99s"
# With fewer items the 99.9th percentile would just be the slowest one.
_ENOUGH = 1_000


class Arrivals:
    """Handles items, which are the times when they were produced."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    async def handle(self, batch: list[float]) -> None:
        """Note how old the items are."""
        now = time.perf_counter()
        self.delays += [now - each for each in batch]

    def handle_one(self, item: float) -> None:
        """Note how old an item is."""
        self.delays.append(time.perf_counter() - item)


@asynccontextmanager
async def our_loop(arrivals: Arrivals) -> AsyncIterator[Any]:
    """Produce on the loop."""
    async with BatchQueue("benchmark", ONE_PARTITION) as queue:
        queue.add_handler(float, arrivals.handle)
        yield queue.produce


@asynccontextmanager
async def our_bridge(arrivals: Arrivals) -> AsyncIterator[Send]:
    """Produce on a thread."""
    async with BatchQueue("benchmark", ONE_PARTITION) as queue:
        queue.add_handler(float, arrivals.handle)
        yield SyncBatchQueue(queue).produce


@asynccontextmanager
async def bare_call(arrivals: Arrivals) -> AsyncIterator[Send]:
    """Call the handler on the loop, from a thread, with nothing between."""
    loop = asyncio.get_running_loop()
    yield lambda item: loop.call_soon_threadsafe(arrivals.handle_one, item)


@dataclass
class Path:
    """One way to the handler, with the delays of each run by their 99th percentile."""

    name: str
    open: Callable[[Arrivals], AbstractAsyncContextManager[Any]]
    is_on_thread: bool
    runs: dict[float, list[float]] = field(default_factory=dict)
    cpu: float = 0.0
    wall: float = 0.0

    def run(self, loop: LoopFactory, rate: float, seconds: float) -> float:
        """Produce for a while; return the 99th percentile."""
        arrivals = Arrivals()
        started, cpu = time.perf_counter(), time.process_time()
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(self._produce(arrivals, rate, seconds))
        self.cpu += time.process_time() - cpu
        self.wall += time.perf_counter() - started
        p99 = percentile(arrivals.delays, 0.99)
        self.runs[p99] = arrivals.delays
        return p99

    async def _produce(self, arrivals: Arrivals, rate: float, seconds: float) -> None:
        async with self.open(arrivals) as put:
            if self.is_on_thread:
                produce = asyncio.to_thread(produce_on_thread, put, rate, seconds)
                await produce
            else:
                await produce_on_loop(put, rate, seconds)
            await asyncio.sleep(0.01)


def percentile(values: list[float], part: float) -> float:
    """Return the value below which this part lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def table(
    rate: int, loop_name: str, loop: LoopFactory, scale: Scale, turns: Turns
) -> Table:
    """Measure all ways at one rate."""
    paths = [
        Path("on the loop", our_loop, is_on_thread=False),
        Path("from a thread", our_bridge, is_on_thread=True),
        Path("bare call_soon_threadsafe", bare_call, is_on_thread=True),
    ]
    seconds = seconds_at(rate, scale)
    samples = turns.take(
        {path.name: partial(path.run, loop, rate, seconds) for path in paths},
        warm_up=False,
        # 99th percentiles differ from run to run.
        rounds=scale.of(13, turns.rounds) if rate == IN_THE_GOALS else None,
    )
    found = Table(
        f"latency/{loop_name}/{rate}",
        f"Microseconds from produce to handler, {rate:,} items/s, {loop_name}",
        [
            Column("produced"),
            Column("p50", "micros"),
            Column("p99", "micros"),
            Column("p99.9", "micros"),
            Column("CPU", "percent"),
            Column("items", "count"),
            Column(BEYOND, "times"),
        ],
    )
    for path, more in zip(paths, (None, beyond(samples), None), strict=True):
        add(found, path, samples[path.name], more)
    return found


def beyond(samples: dict[str, Samples]) -> float:
    """Return how much later items come from a thread, in multiples of a bare call.

    It is the median over the turns, each of which compares its own three samples.
    """
    on_loop, from_thread, bare = (each.values for each in samples.values())
    return statistics.median(
        (late - early) / call
        for early, late, call in zip(on_loop, from_thread, bare, strict=True)
    )


def seconds_at(rate: int, scale: Scale) -> float:
    """Return how long a sample lasts: rare items take their time."""
    match rate:
        case 10:
            return scale.of(1.0, 0.2)
        case 1_000:
            return scale.of(0.8, 0.15)
        case _:
            return scale.of(0.6, 0.1)


def add(found: Table, path: Path, samples: Samples, more: float | None) -> None:
    """Add a row: p99 is the median of the turns', the rest is of all their items."""
    # Runs that were disturbed and taken again are left out.
    delays = [delay for p99 in samples.values for delay in path.runs[p99]]
    found.add(
        path.name,
        percentile(delays, 0.5),
        samples.median,
        percentile(delays, 0.999) if len(delays) >= _ENOUGH else None,
        path.cpu / path.wall,
        len(delays),
        more,
    )
