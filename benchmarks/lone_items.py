"""One item at a time: how soon it is handled when no other one comes."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from batchqueue_async import BatchQueue, BatchQueueConfig
from benchmarks import ours
from benchmarks.contender import BOUND, Items, set_all_aside
from benchmarks.floor import Handle
from benchmarks.peers_in_loop import anyio_batcher, batcher
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Samples, Turns

KINDS = 100
APART = 0.002
PING_PONG = "ping-pong"
RARE = f"{APART * 1e3:.0f} ms apart"
PAUSES = {PING_PONG: 0.0, RARE: APART}
QUEUE = "asyncio.Queue"
OURS = "await produce"
STREAM = "anyio stream, send"
BESIDE = f"beside {QUEUE}"

Put = Callable[[Any], Awaitable[object]]
Open = Callable[[Items, Handle], AbstractAsyncContextManager[Put]]


@dataclass
class Way:
    """One way of getting an item to its handler."""

    name: str
    open: Open
    items: Items
    cpu: list[float] = field(default_factory=list)
    """Seconds per item, of all samples."""

    def measure(self, loop: LoopFactory, pause: float, seconds: float) -> float:
        """Return the median time from the call of `put` to that of the handler."""
        set_all_aside()
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(self._one_by_one(pause, seconds))

    async def _one_by_one(self, pause: float, seconds: float) -> float:
        handled = asyncio.Event()
        arrived = 0.0

        async def handle(_: list[Any]) -> None:
            nonlocal arrived
            arrived = time.perf_counter()
            handled.set()

        delays = []
        (item,) = self.items.portions(1, 1)
        async with self.open(self.items, handle) as put:
            cpu, until = time.process_time(), time.perf_counter() + seconds
            while (started := time.perf_counter()) < until:
                handled.clear()
                await put(item)
                await handled.wait()
                delays.append(arrived - started)
                if pause:
                    await asyncio.sleep(pause)
            self.cpu.append((time.process_time() - cpu) / len(delays))
        return statistics.median(delays)


def batch_queue(config: BatchQueueConfig[Any]) -> Open:
    """Return what opens the library's queue, with a handler for each type."""

    @asynccontextmanager
    async def opened(items: Items, handle: Handle) -> AsyncIterator[Put]:
        async with BatchQueue("benchmark", config) as queue:
            for item_type in items.types:
                queue.add_handler(item_type, handle)
            yield queue.produce

    return opened


@asynccontextmanager
async def asyncio_queue(items: Items, handle: Handle) -> AsyncIterator[Put]:
    """`asyncio.Queue` with a hand-written consumer."""
    queue: asyncio.Queue[Any] = asyncio.Queue(BOUND)
    async with ours.beside(batcher(queue, dict.fromkeys(items.types, handle))):
        yield queue.put


@asynccontextmanager
async def anyio_stream(items: Items, handle: Handle) -> AsyncIterator[Put]:
    """An anyio memory stream with a hand-written consumer."""
    send, receive = anyio.create_memory_object_stream[Any](BOUND)
    handlers = dict.fromkeys(items.types, handle)
    with send, receive:
        async with ours.beside(anyio_batcher(receive, handlers)):
            yield send.send


def table(way: str, loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare everybody, with items that come in one way."""
    one, many = Items(1, 1), Items(KINDS, KINDS)
    ways = [
        Way(OURS, batch_queue(ours.ONE_PARTITION), one),
        Way(QUEUE, asyncio_queue, one),
        Way(STREAM, anyio_stream, one),
        Way(f"{OURS}, {KINDS} types", batch_queue(ours.adaptive(KINDS)), many),
    ]
    pause = PAUSES[way]
    seconds = scale.of(0.25 if pause else 0.1, 0.05)
    samples = turns.take(
        {each.name: partial(each.measure, loop, pause, seconds) for each in ways},
        warm_up=False,
        rounds=scale.of(11, turns.rounds),
    )
    found = Table(
        f"lone items/{way}",
        f"Microseconds from produce to handler, one item at a time, {way}",
        [
            Column("produced"),
            Column("median", "micros"),
            Column(BESIDE, "times"),
            Column("CPU per item", "micros"),
            Column("spread", "percent"),
        ],
    )
    for each in ways:
        add(found, each, samples[each.name], samples[QUEUE])
    return found


def add(found: Table, way: Way, mine: Samples, queue: Samples) -> None:
    """Add a row."""
    cpu = statistics.median(way.cpu)
    found.add(way.name, mine.median, mine.beside(queue), cpu, mine.spread)
