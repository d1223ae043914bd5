"""How the cost per item grows with more types, and with more drain tasks."""

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
)
from benchmarks.contender import Counter, Items, set_all_aside
from benchmarks.floor import FloorQueue
from benchmarks.ours import beside
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Column, Table
from benchmarks.turns import Measure, Turns

PutMany = Callable[[list[Any]], Awaitable[object]]

TYPES = (1, 10, 100, 1_000, 10_000)
DRAIN_TASKS = (1, 2, 4, 8, 16, 32, 64)
PER_TYPE = 50
"""Items of each type in a cycle, so in a batch."""

WAYS: dict[str, PartitionPolicy | None] = {
    "adaptive partitions": PartitionPolicy.adaptive(),
    "one partition": PartitionPolicy.fixed(1),
    "floor": None,
}
BASE = 100
"""Growth is the cost beside that of so many types."""


def types_table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Measure with more and more types, all of them in each turn."""
    table = Table(
        "growth/types",
        f"Types, {PER_TYPE} items of each per cycle",
        [
            Column("types"),
            *(Column(f"ns per item, {way}", "nanos") for way in WAYS),
            *(Column(f"beside {BASE}, {way}", "times") for way in WAYS),
            Column("of floor", "percent"),
            Column("million/s", "millions"),
        ],
    )
    everybody = TYPES[: scale.of(5, 4)]
    # All have the same number of items, so caches are equally full.
    items = {
        kinds: Items(kinds, max(scale.of(500_000, 20_000), PER_TYPE * kinds))
        for kinds in everybody
    }
    # A way's growth is its ratio of the most types to BASE, so these come first.
    order = [BASE, *(kinds for kinds in reversed(everybody) if kinds != BASE)]
    configs = {
        f"{way}, {kinds}": (
            None if policy is None else of_types(kinds, policy),
            items[kinds],
        )
        for way, policy in WAYS.items()
        for kinds in order
    }
    with measures(configs, loop, scale) as there:
        found = turns.take(there, warm_up=False, rounds=scale.of(19, 5))
    for kinds in everybody:
        mine = [found[f"{way}, {kinds}"] for way in WAYS]
        base = [found[f"{way}, {BASE}"] for way in WAYS]
        ours, *_, floor = mine
        table.add(
            f"{kinds:,}",
            *(each.median for each in mine),
            *(each.beside(own) for each, own in zip(mine, base, strict=True)),
            floor.beside(ours),
            1 / ours.median,
        )
    return table


def of_types(
    kinds: int, partitions: PartitionPolicy, drain_tasks: int = 1
) -> BatchQueueConfig[Any]:
    """Return settings with which one cycle's items just fill the partitions."""
    count = partitions.resolve(drain_tasks, kinds)
    return BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=partitions,
        buffer_size=PER_TYPE * -(-kinds // count),
    )


def drain_tasks_table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Measure with more and more drain tasks, and a partition for each type."""
    kinds = 2 * DRAIN_TASKS[-1]
    table = Table(
        "growth/drain tasks",
        f"Drain tasks; {kinds} types and partitions, {PER_TYPE} of each per cycle",
        [
            Column("drain tasks"),
            Column("ns per item", "nanos"),
            Column("million/s", "millions"),
        ],
    )
    items = Items(kinds, scale.of(500_000, 20_000))
    partitions = PartitionPolicy.fixed(kinds)
    configs = {str(n): (of_types(kinds, partitions, n), items) for n in DRAIN_TASKS}
    with measures(configs, loop, scale) as there:
        samples = turns.take(there, warm_up=False, rounds=scale.of(9, 5))
    for name, mine in samples.items():
        table.add(name, mine.median, 1 / mine.median)
    return table


@contextmanager
def measures(
    configs: Mapping[str, tuple[BatchQueueConfig[Any] | None, Items]],
    loop: LoopFactory,
    scale: Scale,
) -> Iterator[dict[str, Measure]]:
    """Open a queue for each; a measure returns the seconds per item, warm.

    The queues stay open, so that samples follow each other at once, instead of a
    hundred milliseconds of `add_handler` apart. Without settings it is the floor's
    queue.
    """
    with asyncio.Runner(loop_factory=loop) as runner:
        stack = AsyncExitStack()
        there: dict[str, Measure] = {}
        for name, (config, items) in configs.items():
            per_cycle = PER_TYPE * len(items.types)
            counter = Counter(items.types, per_cycle)
            queue = opened(config, counter, per_cycle)
            put_many = runner.run(stack.enter_async_context(queue))
            cycles = max(1, scale.of(500_000, 20_000) // per_cycle)
            chunks = items.portions(cycles * per_cycle, per_cycle)
            there[name] = partial(sample, runner, put_many, chunks, counter)
        set_all_aside()
        try:
            yield there
        finally:
            runner.run(stack.aclose())


@asynccontextmanager
async def opened(
    config: BatchQueueConfig[Any] | None, counter: Counter, per_cycle: int
) -> AsyncIterator[PutMany]:
    """Open a queue, or without settings the floor's."""
    if config is None:
        floor = FloorQueue(per_cycle, counter.handlers)
        async with beside(floor.drain()):
            yield floor.put_many
        return
    async with BatchQueue("benchmark", config) as queue:
        for item_type, handle in counter.handlers.items():
            queue.add_handler(item_type, handle)
        yield queue.produce_many


def sample(
    runner: asyncio.Runner,
    put_many: PutMany,
    chunks: Sequence[list[Any]],
    counter: Counter,
) -> float:
    """Return the seconds per item."""
    return runner.run(in_cycles(put_many, chunks, counter))


async def in_cycles(
    put_many: PutMany, chunks: Sequence[list[Any]], counter: Counter
) -> float:
    """Produce a cycle's items only once the last cycle's are handled."""
    started = 0.0
    for chunk in [chunks[0], *chunks]:
        counter.expect(len(chunk))
        await put_many(chunk)
        await counter.wait()
        started = started or time.perf_counter()
    return (time.perf_counter() - started) / (len(chunks) * len(chunks[0]))
