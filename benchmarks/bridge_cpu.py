"""What an item from a thread costs where few come: the processor's time, not the clock.

At 1,000 items a second each of them wakes the loop up, in all queues.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from batchqueue_async import SyncBatchQueue
from benchmarks import ours
from benchmarks.contender import BlockingFeed, Counter, Handlers
from benchmarks.machine import is_installed
from benchmarks.pacing import produce_on_thread
from benchmarks.peers_bridge import janus_bridge
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Turns

RATE = 1_000
OURS = "SyncBatchQueue.produce"
JANUS = "janus"
CPU = "CPU per item"
BESIDE = "ours, beside it"

Put = Callable[[float], object]


@dataclass
class Way:
    """One way from a thread to a handler."""

    name: str
    open: Callable[[Handlers], AbstractAsyncContextManager[Put]]
    needs: str | None = None

    def measure(self, loop: LoopFactory, seconds: float) -> float:
        """Return the CPU time of the whole process, per item."""
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(self._paced(seconds))

    async def _paced(self, seconds: float) -> float:
        counter = Counter([float], 1)
        async with self.open(counter.handlers) as put:
            # The first call starts a thread, and does other things done only once.
            await asyncio.to_thread(put, 0.0)
            await counter.wait()
            counter.expect(round(RATE * seconds))
            cpu = time.process_time()
            sent = await asyncio.to_thread(produce_on_thread, put, RATE, seconds)
            await counter.wait()
            return (time.process_time() - cpu) / sent


@asynccontextmanager
async def janus(handlers: Handlers) -> AsyncIterator[Put]:
    """Janus with a hand-written consumer."""
    async with janus_bridge(handlers) as feed:
        yield one_by_one(feed)


def one_by_one(feed: BlockingFeed) -> Put:
    """Return what feeds one item."""
    return lambda item: feed((item,))


@asynccontextmanager
async def bare_call(handlers: Handlers) -> AsyncIterator[Put]:
    """`call_soon_threadsafe` and a task: what an item costs that wakes the loop up."""
    loop = asyncio.get_running_loop()
    handle = handlers[float]
    running: set[asyncio.Task[None]] = set()

    async def deliver(item: float) -> None:
        await handle([item])

    def start(item: float) -> None:
        task = loop.create_task(deliver(item))
        running.add(task)
        task.add_done_callback(running.discard)

    yield lambda item: loop.call_soon_threadsafe(start, item)


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Measure all ways in turns."""
    opened = ours.batch_queue(
        ours.ONE_PARTITION, lambda queue: SyncBatchQueue(queue).produce
    )
    ways = [
        Way(OURS, opened),
        Way(JANUS, janus, JANUS),
        Way("call_soon_threadsafe, a task", bare_call),
    ]
    there = [way for way in ways if is_installed(way.needs)]
    seconds = scale.of(0.4, 0.15)
    samples = turns.take(
        {way.name: partial(way.measure, loop, seconds) for way in there},
        warm_up=False,
        rounds=scale.of(11, turns.rounds),
    )
    found = Table(
        "bridge cpu",
        f"Microseconds of CPU per item from a thread, {RATE:,} items/s",
        [
            Column("producing"),
            Column(CPU, "micros"),
            Column(BESIDE, "times"),
            Column("spread", "percent"),
        ],
    )
    for way in there:
        mine = samples[way.name]
        beside = samples[OURS].beside(mine)
        found.add(way.name, mine.median, beside, mine.spread)
    return found
