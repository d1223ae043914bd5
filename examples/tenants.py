"""One queue for many tenants: who floods delays himself, and nobody else.

The store takes 5 ms for a request, whatever is in it. Shops order now and then; one
imports its whole catalogue. `fair_by` gives each of them room and a share of its own.

    python examples/tenants.py
"""

import asyncio
import sys
from time import perf_counter
from typing import NamedTuple

from batchqueue_async import BatchQueue, BatchQueueConfig, fair_by

SHOPS = [f"shop {number}" for number in range(20)]


class Order(NamedTuple):
    shop: str
    placed: float


async def main() -> None:
    took: dict[str, list[float]] = {shop: [] for shop in (*SHOPS, "import")}

    async def store(orders: list[Order]) -> None:
        await asyncio.sleep(0.005)
        for order in orders:
            took[order.shop].append(perf_counter() - order.placed)

    async def send(
        queue: BatchQueue[Order], shop: str, count: int, every: float
    ) -> None:
        for _ in range(count):
            await queue.produce(Order(shop, perf_counter()))
            await asyncio.sleep(every)

    def slowest(shops: list[str]) -> float:
        return max(seconds for shop in shops for seconds in took[shop])

    config = BatchQueueConfig[Order](
        consumer=store, buffer_size=1000, selector=fair_by(lambda order: order.shop)
    )
    async with BatchQueue("orders", config) as queue, asyncio.TaskGroup() as tenants:
        tenants.create_task(send(queue, "import", 20_000, 0))
        for shop in SHOPS:
            tenants.create_task(send(queue, shop, 20, 0.03))

    counts = {shop: len(seconds) for shop, seconds in took.items()}
    if counts != dict.fromkeys(SHOPS, 20) | {"import": 20_000}:
        sys.exit(f"not every order was stored: {counts}")
    print(f"{queue.stats().handled} orders were stored")
    print(f"the import's took up to {slowest(['import']):.3f} s")
    print(f"the shops' took up to {slowest(SHOPS):.3f} s")


if __name__ == "__main__":
    asyncio.run(main())
