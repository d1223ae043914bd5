"""Adaptive policies, two of each: beside each other, and while everything changes."""

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
    RetryAfter,
    by_key,
    fair_by,
    in_thread,
    round_robin,
)
from tests.support.oracle import check_accounts, check_settled

ITEMS, SECONDS = 10, 0.1
KEYS = 16


class Server:
    """Does some calls at once; the others wait in it, or are refused."""

    def __init__(self, slots: int, *, refuses: bool = False) -> None:
        self.slots = slots
        self.refuses = refuses
        self.seconds = SECONDS
        self._calls = 0
        self._free = asyncio.Condition()

    async def take(self) -> None:
        if self.refuses and self._calls >= self.slots:
            raise RetryAfter(SECONDS)
        async with self._free:
            await self._free.wait_for(lambda: self._calls < self.slots)
            self._calls += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self._calls -= 1
            async with self._free:
                self._free.notify()


def config_of(consumer: Any) -> BatchQueueConfig[int]:  # noqa: ANN401 - any form
    return BatchQueueConfig(
        consumer=consumer,
        drain_tasks=DrainTaskPolicy.adaptive(1, 12),
        partitions=PartitionPolicy.fixed(12),
        selector=round_robin,
        max_batch=ITEMS,
        buffer_size=4 * ITEMS,
        retry=Retry(attempts=100_000, wait_initial=0.0),
        shutdown_timeout=0.0,
    )


async def keep_full(queue: BatchQueue[int]) -> None:
    while await queue.produce_many([1] * 100):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("later", [0.0, 30.0])
@pytest.mark.parametrize("refuses", [False, True])
async def test_two_queues_share_what_a_server_takes(
    refuses: bool,  # noqa: FBT001 - pytest's
    later: float,
) -> None:
    server = Server(8, refuses=refuses)

    async def consume(_: list[int]) -> None:
        await server.take()

    async with BatchQueueManager(shutdown_timeout=0.0) as manager:
        first = await manager.create("first", config_of(consume))
        other = await manager.create("other", config_of(consume))
        feeding = [asyncio.create_task(keep_full(first))]
        await asyncio.sleep(later)
        feeding.append(asyncio.create_task(keep_full(other)))
        await asyncio.sleep(40.0)
        before = [each.stats().handled for each in (first, other)]
        await asyncio.sleep(20.0)
        after = [each.stats().handled for each in (first, other)]
        rates = [(b - a) / 20.0 for a, b in zip(before, after, strict=True)]
        most = 8 * ITEMS / SECONDS
        assert sum(rates) > 0.85 * most
        assert min(rates) > 0.15 * most
        for each in (first, other):
            check_accounts(each)
            await each.shutdown(0.0)
        await asyncio.gather(*feeding)


@pytest.mark.real_time
async def test_two_queues_share_the_threads_of_a_handler() -> None:
    got: list[int] = []
    consume = in_thread(got.extend, concurrency=2)
    async with BatchQueueManager() as manager:
        queues = [
            await manager.create(name, config_of(consume)) for name in ("one", "other")
        ]
        for queue in queues:
            await queue.produce_many(range(1_000))
            await queue.flush()
            check_settled(queue)
    assert sorted(got) == sorted([*range(1_000), *range(1_000)])


SELECTORS: dict[str, Any] = {
    "by_key": by_key(lambda item: item[1] % KEYS),
    "fair_by": fair_by(lambda item: item[1] % KEYS),
}


class Scenario:
    """Two queues and two kinds of items in each; the server and the load change."""

    def __init__(self, seed: int, selector: str) -> None:
        self._chance = random.Random(seed)
        self._server = Server(4, refuses=seed % 2 == 0)
        self._failing = 0.0
        self.failed: list[tuple[str, int]] = []
        self.got: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.produced = 0
        sizes: dict[str, Any] = {}
        if selector == "by_key" and seed % 3 == 0:
            sizes = {"size_of": lambda _: 1, "max_batch_bytes": 60}
        self.config = BatchQueueConfig[tuple[str, int]](
            consumer=self._consume,
            drain_tasks=DrainTaskPolicy.adaptive(1, 6),
            partitions=PartitionPolicy.fixed(KEYS),
            selector=SELECTORS[selector],
            max_batch="auto",
            buffer_size=200,
            linger=self._chance.choice([0.0, 0.01, 0.3]),
            rebalancing=Rebalancing(interval=self._chance.choice([0.05, 0.3, 1.0])),
            retry=Retry(attempts=100_000, wait_initial=0.01, wait_max=0.1),
            **sizes,
        )

    async def _consume(self, batch: list[tuple[str, int]]) -> None:
        # All or nothing: what is tried again has not been taken.
        if self._chance.random() < self._failing:
            raise self._chance.choice([OSError(), RetryAfter(0.2)])
        await self._server.take()
        for name, number in batch:
            self.got[name, number % KEYS].append(number)

    async def change(self) -> None:
        """Let the server be another one every now and then."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.1, 4.0))
            self._server.slots = self._chance.choice([1, 2, 4, 16])
            self._server.seconds = self._chance.choice([0.0, 0.001, 0.05, 1.5])
            self._failing = self._chance.choice([0.0, 0.0, 0.05, 0.5, 0.9])

    async def feed(self, queue: BatchQueue[tuple[str, int]], name: str) -> None:
        """Load it by turns a hundred times as much as before."""
        number = 0
        for _ in range(8):
            pause = self._chance.choice([0.0, 0.01, 1.0])
            for _ in range(10 if pause else 25):
                many = self._chance.randint(1, 40)
                items = [(name, each) for each in range(number, number + many)]
                number += many
                assert await queue.produce_many(items) == many
                await asyncio.sleep(pause)
            if self._chance.random() < 0.2:
                await queue.flush()
        self.produced += number

    async def run(self) -> None:
        async with BatchQueueManager(shutdown_timeout=None) as manager:
            changing = asyncio.create_task(self.change())
            queues, feeding = [], []
            for name in ("one", "other"):
                queue = await manager.create(name, self.config)
                queues.append(queue)
                feeding.append(asyncio.create_task(self.feed(queue, name)))
                feeding.append(asyncio.create_task(self.feed(queue, f"{name}'s")))
            # Of two who feed a queue with a key, each has an order of its own.
            await asyncio.gather(*feeding)
            for queue in queues:
                check_accounts(queue)
            changing.cancel()
            self._failing = 0.0
            # In the middle of whatever is being changed.
            self._server.seconds = 0.01
            assert not any((await manager.shutdown_all(None)).values())


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))]
)
async def test_order_and_account_hold_whatever_changes(
    seed: int, selector: str
) -> None:
    scenario = Scenario(seed, selector)
    await scenario.run()
    for got in scenario.got.values():
        assert got == sorted(set(got))
    assert sum(map(len, scenario.got.values())) == scenario.produced


async def test_a_handler_that_fails_for_ever_does_not_keep_the_other_one_small() -> (
    None
):
    async def fail(_: list[str]) -> None:
        raise OSError

    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0.002 + 1e-5 * len(batch))

    config = BatchQueueConfig[Any](max_batch="auto", on_error=lambda *_: None)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(str, fail)
        queue.add_handler(int, consume)
        for _ in range(100):
            await queue.produce_many(["x", *range(2_000)])
        with pytest.raises(DeliveryError, match="100 failures"):
            await queue.flush()
        failing, other = (each.limit for each in queue.stats().handlers)
        assert failing is not None
        assert other is not None
        assert other.max_batch > 500
        assert failing.failed > 0
        check_accounts(queue)
