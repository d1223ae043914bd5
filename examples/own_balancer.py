"""A balancer of your own in a dozen lines. Run: python examples/own_balancer.py.

Six sensors feed one queue. Those of drain task 0 cost more to store; each round moves
one partition from the busiest drain task to the idlest one, until that gains nothing.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
)


class OneMoveAtATime:
    """From the busiest drain task to the idlest, by the time that handlers take."""

    measure = "seconds"

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> list[int] | None:
        sums = [0.0] * drain_tasks
        for load, owner in zip(loads, owners, strict=True):
            sums[owner] += load
        busiest, idlest = sums.index(max(sums)), sums.index(min(sums))
        gap = sums[busiest] - sums[idlest]
        fitting = [p for p in range(len(loads)) if owners[p] == busiest]
        fitting = [p for p in fitting if 0 < loads[p] < gap]
        if not fitting or gap < 0.2 * sums[busiest]:
            return None
        best = min(fitting, key=lambda p: abs(gap / 2 - loads[p]))
        return [idlest if p == best else owner for p, owner in enumerate(owners)]


class Store:
    """Takes 4 ms for each reading of an even sensor, and 1 ms for the others."""

    def __init__(self, sensor: int) -> None:
        self.seconds = 0.004 if sensor % 2 == 0 else 0.001

    async def consume(self, readings: list[object]) -> None:
        await asyncio.sleep(self.seconds * len(readings))


async def main() -> None:
    config = BatchQueueConfig[object](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(6),
        rebalancing=Rebalancing(OneMoveAtATime(), interval=0.5),
    )
    sensors = [type(f"Sensor{number}", (), {}) for number in range(6)]
    async with BatchQueue("sensors", config) as queue:
        for number, sensor in enumerate(sensors):
            queue.add_handler(sensor, Store(number))
        print("owners:", [partition.owner for partition in queue.stats().partitions])
        for _ in range(120):
            await queue.produce_many([sensor() for sensor in sensors])
            await asyncio.sleep(0.02)
        print("owners:", [partition.owner for partition in queue.stats().partitions])
        last = queue.stats().last_round
        if last is not None:
            print(f"after {last.number} rounds: max/min load {last.ratio_after:.2f}")


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    asyncio.run(main())
