"""Two types, two handlers, one queue. Run: python examples/quickstart.py."""

import asyncio
from typing import NamedTuple

from batchqueue_async import BatchQueue


class Click(NamedTuple):
    page: str


class Order(NamedTuple):
    euros: int


async def main() -> None:
    async def store(clicks: list[Click]) -> None:
        print(f"{len(clicks)} clicks in one batch, from {clicks[0].page} on")

    async def add_up(orders: list[Order]) -> None:
        print(f"{len(orders)} orders, {sum(order.euros for order in orders)} euros")

    async with BatchQueue[Click | Order]("shop") as queue:
        queue.add_handler(Click, store)
        queue.add_handler(Order, add_up)
        for number in range(15_000):
            await queue.produce(Click(f"/page/{number}"))
            if number % 100 == 0:
                await queue.produce(Order(number // 100))

    # Here the queue is closed: what it had accepted was handled, within 30 s.
    print(f"{queue.stats().handled} of {queue.stats().accepted} items were handled")


asyncio.run(main())
