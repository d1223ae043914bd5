"""SkyWalking's six uses of its queue, as settings to start from.

    python examples/recipes.py

docs/guides/recipes.md says which is for what, and has the arithmetic.
"""

import asyncio
from collections import Counter
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    CostBalancer,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
    SharedDrainTasks,
    ThroughputBalancer,
    WhenFull,
    round_robin,
)

Config = BatchQueueConfig[Any]

# L1: many types, merged in memory at a high rate. A full buffer drops, and counts it.
L1 = Config(
    drain_tasks=DrainTaskPolicy.cpu_cores(1.0),
    partitions=PartitionPolicy.adaptive(),
    buffer_size=20_000,
    when_full=WhenFull.DROP_NEWEST,
    rebalancing=Rebalancing(ThroughputBalancer(), interval=10.0),
    idle=IdleBackoff(0.001, 0.050),
)
RARE = 0.05
"""The weight of a type in L1 that sends 500 items per interval, not a stream."""

# L2: the same types once merged, fewer but dear: they wait for the database.
L2 = Config(
    drain_tasks=DrainTaskPolicy.cpu_cores_with_base(1, 0.25),
    partitions=PartitionPolicy.adaptive(),
    buffer_size=2_000,
    rebalancing=Rebalancing(CostBalancer(), interval=10.0),
    idle=IdleBackoff(0.001, 0.050),
)

# Top N: few types and little traffic; one drain task for all of them.
TOP_N = Config(
    drain_tasks=DrainTaskPolicy.fixed(1),
    partitions=PartitionPolicy.adaptive(),
    buffer_size=1_000,
    idle=IdleBackoff(0.010, 0.100),
)


def remote_client(send: Any, channel: int = 1000) -> Config:  # noqa: ANN401
    """One connection, one consumer: everything in order, as fast as it is taken."""
    return Config(
        consumer=send, buffer_size=3 * channel, idle=IdleBackoff(0.001, 0.050)
    )


# Exporters: one queue each, and at most two of them at work at the same time.
SHARED_IO = SharedDrainTasks("exporters", DrainTaskPolicy.fixed(2))


def exporter(send: Any, *, may_drop: bool = False) -> Config:  # noqa: ANN401
    """One exporter. If its broker must not hold others up, it drops when it is full."""
    return Config(
        consumer=send,
        drain_tasks=SHARED_IO,
        buffer_size=20_000,
        when_full=WhenFull.DROP_NEWEST if may_drop else WhenFull.WAIT,
        idle=IdleBackoff(0.001, 0.200),
    )


def database(execute: Any, connections: int = 4) -> Config:  # noqa: ANN401
    """SQL: a drain task per connection, and rows may go to any of them."""
    return Config(
        consumer=execute,
        drain_tasks=DrainTaskPolicy.fixed(connections),
        partitions=PartitionPolicy.fixed(connections),
        selector=round_robin,
        buffer_size=10_000,
        max_batch=2_000,
        idle=IdleBackoff(0.001, 0.020),
    )


class Seen:
    """What the handlers got, by name, and how many of each were inside at once."""

    def __init__(self) -> None:
        self.items: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def handler(self, name: str, group: str) -> Any:  # noqa: ANN401
        async def consume(batch: list[Any]) -> None:
            self.inside[group] += 1
            self.most[group] = max(self.most[group], self.inside[group])
            await asyncio.sleep(0.005)
            self.inside[group] -= 1
            self.items[name] += len(batch)

        return consume


def types_of(name: str, count: int) -> list[type]:
    return [type(f"{name}{number}", (), {}) for number in range(count)]


async def fill(queue: BatchQueue[Any], types: list[type], each: int) -> None:
    for kind in types:
        await queue.produce_many(kind() for _ in range(each))


async def main() -> None:
    seen = Seen()
    streams, rare = types_of("Stream", 10), types_of("Rare", 40)
    async with BatchQueueManager() as manager:
        # The end of a chain first: it is closed last.
        sql = await manager.create("sql", database(seen.handler("sql", "sql")))
        exporters = [
            await manager.create(
                name, exporter(seen.handler(name, "exporters"), may_drop=may_drop)
            )
            for name, may_drop in (("grpc", False), ("traces", True), ("logs", True))
        ]
        remote = await manager.create(
            "remote", remote_client(seen.handler("remote", "remote"))
        )
        top_n = await manager.create("top_n", TOP_N)
        l2 = await manager.create("l2", L2)
        l1 = await manager.create("l1", L1)
        for kind in streams:
            l1.add_handler(kind, seen.handler("l1", kind.__name__))
            l2.add_handler(kind, seen.handler("l2", kind.__name__))
        for kind in rare:
            l1.add_handler(kind, seen.handler("l1", kind.__name__), weight=RARE)
        top_n.add_handler(object, seen.handler("top_n", "top_n"))
        await fill(l1, [*streams, *rare], each=500)
        await fill(l2, streams, each=50)
        await fill(top_n, streams[:3], each=100)
        for queue in (sql, remote, *exporters):
            await queue.produce_many(range(15_000))
        await l1.flush()
    for name, count in sorted(seen.items.items()):
        print(f"{name}: {count}")
    print(f"at most {seen.most['sql']} statements and {seen.most['exporters']} exports")


if __name__ == "__main__":
    asyncio.run(main())
