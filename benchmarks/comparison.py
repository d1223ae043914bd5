"""Measures the queue beside its peers and its floor: python -m benchmarks.comparison.

All contenders get the same items from the same loop, in turns; what counts is the time
from the first item produced to the last one handled. Read the ratios: they come from
one run. The items per second are this machine's. `janus` takes part if installed.
"""

import asyncio
import contextlib
import gc
import importlib
import importlib.util
import os
import platform
import statistics
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartitionPolicy,
    SyncBatchQueue,
)
from benchmarks.floor import FloorBridge, FloorQueue, Handle, dispatch

BOUND = 20_000
CHUNK = 1000
ROUNDS = 5

Handlers = Mapping[type, Handle]
Put = Callable[[Any], Awaitable[object]]
BlockingPut = Callable[[Any], object]
# A floor's name says so: its row has the ratio 1.
FLOOR = "floor: "


class Counter:
    """Handlers for some types, and the moment when enough items have reached them."""

    def __init__(self, types: Sequence[type], expected: int) -> None:
        self._left = expected
        self._done = asyncio.Event()
        self.handlers = dict.fromkeys(types, self._count)

    async def _count(self, batch: list[Any]) -> None:
        self._left -= len(batch)
        if self._left <= 0:
            self._done.set()

    async def wait(self) -> None:
        """Wait until the last item was handled."""
        await self._done.wait()


@dataclass
class Contender:
    """One way of doing it; `open` yields the function that takes items."""

    name: str
    open: Callable[[Handlers], AbstractAsyncContextManager[Callable[[Any], Any]]]
    items: int
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median of its items per second."""
        return statistics.median(self.rates)


@asynccontextmanager
async def beside(drain: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a hand-written drain task until the end of the block."""
    task = asyncio.ensure_future(drain)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def batch_queue(partitions: PartitionPolicy, verb: str) -> Callable[[Handlers], Any]:
    """The library, with default settings but for its size."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Any]:
        config = BatchQueueConfig[Any](buffer_size=BOUND, partitions=partitions)
        async with BatchQueue("benchmark", config) as queue:
            for item_type, handle in handlers.items():
                queue.add_handler(item_type, handle)
            put = SyncBatchQueue(queue).produce if verb == "bridge" else None
            yield put or getattr(queue, verb)

    return opened


@asynccontextmanager
async def floor_put(handlers: Handlers) -> AsyncIterator[Put]:
    """The hand-written queue, item by item."""
    queue = FloorQueue(BOUND, handlers)
    async with beside(queue.drain()):
        yield queue.put


@asynccontextmanager
async def floor_put_many(handlers: Handlers) -> AsyncIterator[Put]:
    """The hand-written queue, chunk by chunk."""
    queue = FloorQueue(BOUND, handlers)
    async with beside(queue.drain()):
        yield queue.put_many


@asynccontextmanager
async def floor_bridge(handlers: Handlers) -> AsyncIterator[BlockingPut]:
    """The hand-written queue for threads."""
    bridge = FloorBridge(BOUND, handlers)
    async with beside(bridge.drain()):
        yield bridge.put


async def batcher(queue: Any, handlers: Handlers) -> None:  # noqa: ANN401
    """The loop that everybody writes: wait for one item, then take what is there."""
    while True:
        batch = [await queue.get()]
        while not queue.empty():
            batch.append(queue.get_nowait())
        await dispatch(batch, handlers)


@asynccontextmanager
async def asyncio_queue(handlers: Handlers) -> AsyncIterator[Put]:
    """`asyncio.Queue` with a hand-written batcher."""
    queue: asyncio.Queue[Any] = asyncio.Queue(BOUND)
    async with beside(batcher(queue, handlers)):
        yield queue.put


@asynccontextmanager
async def asyncio_queue_chunks(handlers: Handlers) -> AsyncIterator[Put]:
    """The same; it has no bulk put."""
    async with asyncio_queue(handlers) as put:

        async def put_each(chunk: Sequence[Any]) -> None:
            for item in chunk:
                await put(item)

        yield put_each


@asynccontextmanager
async def threadsafe_coroutines(handlers: Handlers) -> AsyncIterator[BlockingPut]:
    """`run_coroutine_threadsafe` for each item, with back-pressure."""
    loop = asyncio.get_running_loop()
    async with asyncio_queue(handlers) as put:

        async def put_on_loop(item: object) -> None:
            await put(item)

        yield lambda item: asyncio.run_coroutine_threadsafe(
            put_on_loop(item), loop
        ).result()


@asynccontextmanager
async def janus_queue(handlers: Handlers) -> AsyncIterator[BlockingPut]:
    """A janus queue with the same batcher."""
    queue = importlib.import_module("janus").Queue(BOUND)
    async with beside(batcher(queue.async_q, handlers)):
        yield queue.sync_q.put
    await queue.aclose()


async def feed(put: Put, portions: Sequence[Any]) -> None:
    """Produce on the loop."""
    for portion in portions:
        await put(portion)


def feed_blocking(put: BlockingPut, portions: Sequence[Any]) -> None:
    """Produce on a thread."""
    for portion in portions:
        put(portion)


async def measure_in_loop(
    contender: Contender, types: Sequence[type], portions: Sequence[Any]
) -> float:
    """Return the seconds for all portions: items, or chunks of them."""
    counter = Counter(types, contender.items)
    async with contender.open(counter.handlers) as put:
        started = time.perf_counter()
        await feed(put, portions)
        await counter.wait()
        return time.perf_counter() - started


async def measure_threads(
    contender: Contender, types: Sequence[type], portions: Sequence[Any], threads: int
) -> float:
    """Return the seconds for all items, produced by so many threads."""
    counter = Counter(types, contender.items)
    shares = [portions[start::threads] for start in range(threads)]
    async with contender.open(counter.handlers) as put:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for share in shares:
                group.create_task(asyncio.to_thread(feed_blocking, put, share))
        await counter.wait()
        return time.perf_counter() - started


def compare(
    title: str, contenders: Sequence[Contender], kinds: int, *, chunk: int, threads: int
) -> None:
    """Measure in turns, and print medians."""
    types = [type(f"Type{n}", (), {"__slots__": ()}) for n in range(kinds)]
    most = max(contender.items for contender in contenders)
    items = [types[n % kinds]() for n in range(min(most, 400_000))] * (most // 400_000)
    items = items or [types[n % kinds]() for n in range(most)]
    portions: list[Any] = items
    if chunk > 1:
        portions = [items[at : at + chunk] for at in range(0, most, chunk)]
    gc.collect()
    gc.freeze()
    for turn in range(-1, ROUNDS):  # The first one only warms up.
        for contender in contenders:
            share = portions[: contender.items // chunk]
            seconds = asyncio.run(
                measure_threads(contender, types, share, threads)
                if threads
                else measure_in_loop(contender, types, share)
            )
            if turn >= 0:
                contender.rates.append(contender.items / seconds)
    gc.unfreeze()
    report(title, contenders)


def report(title: str, contenders: Sequence[Contender]) -> None:
    """Print ratios first: to the floor, and of the library to each."""
    ours = contenders[0].rate
    floor = next(each.rate for each in contenders if each.name.startswith(FLOOR))
    print(f"\n{title}")
    print(f"{'':46}  of floor  we are  million/s     (min .. max)")
    for each in contenders:
        low, high = min(each.rates) / 1e6, max(each.rates) / 1e6
        print(
            f"{each.name:46}  {each.rate / floor:7.1%}  {ours / each.rate:5.1f}x"
            f"  {each.rate / 1e6:9.3f}  ({low:.3f} .. {high:.3f})"
        )


def compare_in_loop(kinds: int, partitions: PartitionPolicy) -> None:
    """Producers on the loop: one by one, and in chunks."""
    of_types = "1 type" if kinds == 1 else f"{kinds} types, {partitions!r}"
    compare(
        f"In the loop, one by one, {of_types}",
        [
            Contender("await produce", batch_queue(partitions, "produce"), 400_000),
            Contender("asyncio.Queue and a batcher", asyncio_queue, 400_000),
            Contender(FLOOR + "list swap, await put", floor_put, 400_000),
        ],
        kinds,
        chunk=1,
        threads=0,
    )
    compare(
        f"In the loop, chunks of {CHUNK}, {of_types}",
        [
            Contender(
                "await produce_many",
                batch_queue(partitions, "produce_many"),
                4_000_000,
            ),
            Contender("asyncio.Queue and a batcher", asyncio_queue_chunks, 400_000),
            Contender(FLOOR + "list swap, await put_many", floor_put_many, 4_000_000),
        ],
        kinds,
        chunk=CHUNK,
        threads=0,
    )


def compare_threads(threads: int) -> None:
    """Producers on other threads."""
    contenders = [
        Contender("produce", batch_queue(PartitionPolicy.fixed(1), "bridge"), 400_000),
        Contender("run_coroutine_threadsafe", threadsafe_coroutines, 5_000),
        Contender(FLOOR + "lock and list swap, put", floor_bridge, 400_000),
    ]
    if importlib.util.find_spec("janus"):
        contenders.insert(1, Contender("janus and a batcher", janus_queue, 100_000))
    else:
        print("\njanus is not installed: it takes no part.")
    plural = "" if threads == 1 else "s"
    compare(
        f"From {threads} thread{plural}, one by one, 1 type",
        contenders,
        1,
        chunk=1,
        threads=threads,
    )


def main() -> None:
    """Compare everything; takes about a minute."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"
    janus = version("janus") if importlib.util.find_spec("janus") else "none"
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{cpus} cores, load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"batchqueue-async {version('batchqueue-async')}, janus {janus}, asyncio's "
        f"loop; at most {BOUND} waiting items; medians of {ROUNDS}"
    )
    compare_in_loop(1, PartitionPolicy.fixed(1))
    compare_in_loop(100, PartitionPolicy.fixed(1))
    compare_in_loop(100, PartitionPolicy.adaptive())
    compare_threads(1)
    compare_threads(4)


if __name__ == "__main__":
    main()
