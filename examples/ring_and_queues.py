"""A ring in front of queues: broadcast first, then divide the work.

Every order goes through the ring: numbered, then priced, each step seeing all orders in
their order. The last handler of the pipeline puts them into a `BatchQueue`, which sorts
them by type, and writes batches to two stores at once. When a store is slow its
partition fills, `produce` waits, the handler waits, the ring fills, and the shop waits.

A slot of the ring is used again after its batch. What goes into a queue stays longer,
so it is a value of its own.

    python examples/ring_and_queues.py
"""

import asyncio
from typing import NamedTuple

from batchqueue_async import BatchQueue, BatchQueueConfig, PartitionPolicy
from batchqueue_async.ring import Disruptor

ORDERS = 5_000
PRICES = {"book": 12, "lamp": 30}


class Order:
    """An event of the ring: every step adds to it."""

    __slots__ = ("article", "euros", "number")

    def __init__(self) -> None:
        self.article = ""
        self.number = 0
        self.euros = 0


class Invoice(NamedTuple):
    """An item of the queue."""

    number: int
    euros: int


class Parcel(NamedTuple):
    """Another one."""

    number: int
    article: str


def fill(order: Order, sequence: int, article: str) -> None:
    order.article = article


def give_number(order: Order, sequence: int, end_of_batch: bool) -> None:
    order.number = sequence + 1


def price(order: Order, sequence: int, end_of_batch: bool) -> None:
    order.euros = PRICES[order.article]


async def main() -> None:
    invoices: list[Invoice] = []
    parcels: list[Parcel] = []

    async def store_invoices(batch: list[Invoice]) -> None:
        await asyncio.sleep(0.001)
        invoices.extend(batch)

    async def store_parcels(batch: list[Parcel]) -> None:
        await asyncio.sleep(0.003)
        parcels.extend(batch)

    config = BatchQueueConfig[Invoice | Parcel](
        partitions=PartitionPolicy.fixed(2), buffer_size=200
    )
    queue = BatchQueue("stores", config)

    async def hand_over(order: Order, sequence: int, end_of_batch: bool) -> None:
        await queue.produce(Invoice(order.number, order.euros))
        await queue.produce(Parcel(order.number, order.article))

    disruptor = Disruptor(Order, 256)
    disruptor.handle_events_with(give_number).then(price).then(hand_over)
    # The ring ends first, so that everything is in the queue when that one ends.
    async with queue:
        queue.add_handler(Invoice, store_invoices)
        queue.add_handler(Parcel, store_parcels)
        async with disruptor as ring:
            for number in range(ORDERS):
                await ring.publish_event(fill, "lamp" if number % 4 == 0 else "book")

    print(f"{len(invoices)} invoices, {sum(each.euros for each in invoices)} euros")
    print(f"{len(parcels)} parcels, the last one holds a {parcels[-1].article}")
    in_order = [each.number for each in invoices] == list(range(1, ORDERS + 1))
    print("invoices in order:", in_order)
    print("the shop waited for a slow store:", disruptor.stats().claims_waited > 0)


if __name__ == "__main__":
    asyncio.run(main())
