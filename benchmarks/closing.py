"""How long `flush` and `shutdown` take, against what is waiting."""

import asyncio
import time
from functools import partial
from typing import Any

from batchqueue_async import BatchQueue, BatchQueueConfig
from benchmarks.contender import Counter, Items
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Turns

WAITING = (0, 1_000, 10_000, 100_000, 1_000_000)
KINDS = 100


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Measure both with more and more items."""
    found = Table(
        "closing",
        f"Milliseconds against what is waiting, {KINDS} types, one partition",
        [
            Column("waiting"),
            Column("flush", "millis"),
            Column("shutdown", "millis"),
            Column("ns per item, flush", "nanos"),
        ],
    )
    for waiting in WAITING[: scale.of(5, 4)]:
        items = Items(KINDS, max(waiting, 1))
        samples = turns.take(
            {
                verb: partial(_seconds, verb, waiting, items, loop)
                for verb in ("flush", "shutdown")
            },
            warm_up=False,
        )
        flush, shutdown = samples["flush"].median, samples["shutdown"].median
        per_item = flush / waiting if waiting else None
        found.add(f"{waiting:,}", flush, shutdown, per_item)
    return found


def _seconds(verb: str, waiting: int, items: Items, loop: LoopFactory) -> float:
    portions: list[Any] = items.portions(waiting, 1)
    config = BatchQueueConfig[Any](buffer_size=waiting + 1)

    async def run() -> float:
        counter = Counter(items.types, waiting)
        async with BatchQueue("benchmark", config) as queue:
            for item_type, handle in counter.handlers.items():
                queue.add_handler(item_type, handle)
            # The drain task naps by then, so it takes nothing before the clock starts.
            await asyncio.sleep(0.002)
            await queue.produce_many(portions)
            started = time.perf_counter()
            await getattr(queue, verb)()
            taken = time.perf_counter() - started
        assert counter.left == 0
        return taken

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())
