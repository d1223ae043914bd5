"""The paths whose instructions are counted, each in virtual time and in fixed steps."""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    CostBalancer,
    PartitionPolicy,
    SyncBatchQueue,
    fair_by,
)
from batchqueue_async._engine.queue import parts_of
from batchqueue_async._loop_time import ThreadUse
from benchmarks import plan
from benchmarks.contender import Items
from benchmarks.opcodes import Instructions
from tests.support.virtual_loop import VirtualTimeLoop

COUNT = 10_000
LITTLE = 10
"""Room for so few that nearly every producer waits."""
FEW = 1_000
LONE = 100
"""Items that come one at a time."""
BUFFER = 2 * COUNT


@dataclass(frozen=True)
class HotPath:
    """Something that happens `units` times, counted in a fresh queue."""

    name: str
    unit: str
    units: int
    count: Callable[[], Instructions]


class Stage:
    """A queue that runs only while it is told to."""

    def __init__(self, kinds: int, config: BatchQueueConfig[Any] | None = None) -> None:
        self.loop = VirtualTimeLoop()
        # `ThreadUse` samples a hundred times a second; counting makes cycles so slow
        # that each would have a sample.
        ThreadUse.of(self.loop).due = math.inf
        self.items = Items(kinds, COUNT)
        self.queue = BatchQueue[Any](
            "budget", config or BatchQueueConfig(buffer_size=BUFFER)
        )
        self.instructions = Instructions()

    async def open(self) -> None:
        """Start, and let each type come once: routes are resolved then."""
        await self.queue.start()
        for item_type in self.items.types:
            self.queue.add_handler(item_type, _handle)
        await self.queue.produce_many(self.portions(1))
        await self.queue.flush()

    def portions(self, chunk: int, count: int = COUNT) -> list[Any]:
        """Return items, or as many in chunks."""
        return self.items.portions(count, chunk)


async def _handle(batch: list[Any]) -> None:
    """Do nothing, so nothing of it is counted."""


@contextmanager
def staged(kinds: int, config: BatchQueueConfig[Any] | None = None) -> Iterator[Stage]:
    """Open a queue, and shut it down at the end."""
    stage = Stage(kinds, config)
    stage.loop.run_until_complete(stage.open())
    try:
        yield stage
    finally:
        stage.loop.run_until_complete(stage.queue.shutdown())
        stage.loop.close()


def producing(
    verb: str, kinds: int, chunk: int, config: BatchQueueConfig[Any] | None = None
) -> Instructions:
    """Count what producers on the loop do; the drain task doesn't run meanwhile."""
    with staged(kinds, config) as stage:
        put = getattr(stage.queue, verb)

        async def produce(portions: Sequence[Any]) -> None:
            with stage.instructions.counted():
                for portion in portions:
                    answer = put(portion)
                    if verb != "produce_nowait":
                        await answer

        stage.loop.run_until_complete(produce(stage.portions(chunk)))
        return stage.instructions


def bridging(
    verb: str, kinds: int, chunk: int, config: BatchQueueConfig[Any] | None = None
) -> Instructions:
    """Count what producers outside of the loop do; the loop stands still meanwhile."""
    with staged(kinds, config) as stage:

        async def bridge() -> SyncBatchQueue[Any]:
            return SyncBatchQueue(stage.queue)

        put = getattr(stage.loop.run_until_complete(bridge()), verb)
        portions = stage.portions(chunk)
        # No loop runs on this thread now, so it counts as another thread.
        with stage.instructions.counted():
            for portion in portions:
                put(portion)
        return stage.instructions


def draining(kinds: int, config: BatchQueueConfig[Any] | None = None) -> Instructions:
    """Count one cycle that finds all items waiting, and the nap after it."""
    with staged(kinds, config) as stage:

        async def drain() -> None:
            await stage.queue.produce_many(stage.portions(1))
            with stage.instructions.counted():
                while parts_of(stage.queue).lifecycle.count_left():
                    await _a_moment()

        stage.loop.run_until_complete(drain())
        return stage.instructions


def lone_items() -> Instructions:
    """Count produce, wake-up, cycle and nap of items that come one at a time."""
    with staged(1) as stage:

        async def produce(item: object) -> None:
            with stage.instructions.counted():
                await stage.queue.produce(item)
                for _ in range(10):
                    await _a_moment()

        for item in stage.portions(1, LONE):
            stage.loop.run_until_complete(produce(item))
        return stage.instructions


def waiting_in_line(room: int, producers: int, count: int) -> Instructions:
    """Count producing with little room: waiting, being woken, and the cycles."""
    with staged(1, BatchQueueConfig(buffer_size=room)) as stage:
        items = stage.portions(1, count)

        async def produce(own: Sequence[Any]) -> None:
            for item in own:
                await stage.queue.produce(item)

        async def all_produce() -> None:
            shares = [items[start::producers] for start in range(producers)]
            with stage.instructions.counted():
                await asyncio.gather(*map(produce, shares))

        stage.loop.run_until_complete(all_produce())
        return stage.instructions


def planning() -> Instructions:
    """Count the planning of a round of rebalancing."""
    loads, owners, instructions = plan.loads(), plan.owners(), Instructions()
    with instructions.counted():
        CostBalancer(1).assign(loads, owners, plan.DRAIN_TASKS)
    return instructions


async def _a_moment() -> None:
    await asyncio.sleep(0.001)


ADAPTIVE = BatchQueueConfig[Any](
    buffer_size=BUFFER, partitions=PartitionPolicy.adaptive()
)
KEYS = 100
_turns = count()


def _size(_item: object) -> int:
    return 1


def _key(_item: object) -> int:
    return next(_turns) % KEYS


LOOKED_AT = {
    "sizes": BatchQueueConfig[Any](
        buffer_size=BUFFER,
        size_of=_size,
        buffer_bytes=BUFFER,
        max_batch_bytes=COUNT // 10,
    ),
    f"{KEYS} keys": BatchQueueConfig[Any](
        buffer_size=BUFFER // KEYS, selector=fair_by(_key), max_batch=COUNT // 10
    ),
}
"""Settings for which each item is looked at."""


def hot_paths() -> Iterator[HotPath]:
    """Yield every path that has a budget."""
    for kinds, types in ((1, "1 type"), (100, "100 types")):
        for where, counted in (("", producing), ("bridge ", bridging)):
            verbs = ["produce", "produce_nowait"] if not where else ["produce"]
            for verb in verbs:
                call = partial(counted, verb, kinds, 1)
                yield HotPath(f"{where}{verb}, {types}", "item", COUNT, call)
            for chunk in (100, 1000):
                name = f"{where}produce_many({chunk}), {types}"
                call = partial(counted, "produce_many", kinds, chunk)
                yield HotPath(name, "call", COUNT // chunk, call)
        call = partial(draining, kinds)
        yield HotPath(f"take and dispatch {COUNT:,}, {types}", "cycle", 1, call)
    name = f"take and dispatch {COUNT:,}, 100 types, adaptive"
    yield HotPath(name, "cycle", 1, partial(draining, 100, ADAPTIVE))
    for verb, chunk in (("produce", 1), ("produce_many", 100), ("produce_many", 1000)):
        called = verb if chunk == 1 else f"{verb}({chunk})"
        name = f"{called}, 100 types, adaptive"
        call = partial(producing, verb, 100, chunk, ADAPTIVE)
        yield HotPath(name, "item" if chunk == 1 else "call", COUNT // chunk, call)
    for looked_at, config in LOOKED_AT.items():
        call = partial(producing, "produce", 1, 1, config)
        yield HotPath(f"produce, {looked_at}", "item", COUNT, call)
        call = partial(bridging, "produce", 1, 1, config)
        yield HotPath(f"bridge produce, {looked_at}", "item", COUNT, call)
        name = f"take and dispatch {COUNT:,}, {looked_at}"
        yield HotPath(name, "item", COUNT, partial(draining, 1, config))
    yield HotPath("one item at a time, with its cycle", "item", LONE, lone_items)
    waiting = partial(waiting_in_line, 100, 1, COUNT)
    yield HotPath("produce with back-pressure", "item", COUNT, waiting)
    for producers, by in ((1, "1 producer"), (16, "16 producers")):
        waiting = partial(waiting_in_line, LITTLE, producers, FEW)
        yield HotPath(f"produce, room for {LITTLE}, {by}", "item", FEW, waiting)
    yield HotPath(f"plan of {plan.PARTITIONS} partitions", "plan", 1, planning)
