"""Everything at once, with an oracle that knows each item."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from tests.bridge.background import all_answers, answer_of, in_background, until
from tests.support.oracle import check_accounts, check_settled

THREADS = 8
TASKS = 4
STEPS = 80

Item = tuple[int, int]


@dataclass
class Oracle:
    """What each producer was told about each of its items."""

    accepted: list[Item] = field(default_factory=list)
    refused: list[Item] = field(default_factory=list)
    unknown: list[Item] = field(default_factory=list)
    handled: list[Item] = field(default_factory=list)
    failed: list[Item] = field(default_factory=list)
    inside: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def told(self, items: list[Item], count: int) -> None:
        """The first `count` were accepted: all of them go to one partition."""
        self.accepted += items[:count]
        self.refused += items[count:]

    def check(self, left: list[Item]) -> None:
        assert not self.faults
        ended = self.handled + self.failed + left
        assert len(set(ended)) == len(ended), "doubled"
        assert set(self.accepted) <= set(ended), "lost"
        assert not set(self.refused) & set(ended), "refused, but handled"
        # Cancelled ones left nothing behind; but a part of a chunk may have got in.
        assert set(ended) - set(self.accepted) <= set(self.unknown)
        for producer in range(THREADS + TASKS):
            mine = [step for who, step in self.handled if who == producer]
            assert mine == sorted(mine), "reordered"


class Stress:
    def __init__(self, seed: int, when_full: WhenFull, buffer_size: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.oracle = Oracle()
        self.when_full = when_full
        self.size = buffer_size
        self.queue = BatchQueue[Item](
            "stress",
            BatchQueueConfig[Item](
                drain_tasks=DrainTaskPolicy.fixed(2),
                partitions=PartitionPolicy.fixed(4),
                buffer_size=buffer_size,
                when_full=when_full,
                max_batch=3,
                selector=lambda item, partitions: item[0] % partitions,
                on_error=lambda batch, _: self.oracle.failed.extend(batch),
            ),
        )

    async def consume(self, batch: list[Item]) -> None:
        self.look()
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.choice([0, 0, 0.0005]))
        if self.dice.random() < 0.1:
            message = "no luck"
            raise ValueError(message)
        self.oracle.handled.extend(batch)

    def look(self) -> None:
        for partition in self.queue._parts.partitions:
            waiting = len(partition.items)
            if waiting > self.size:
                self.oracle.faults.append(f"{waiting} waiting")

    def on_thread(self, bridge: SyncBatchQueue[Item], producer: int) -> None:
        dice = random.Random(self.seed * 1000 + producer)
        step = 0
        while step < STEPS:
            items = [(producer, step + n) for n in range(dice.choice([1, 1, 1, 2, 7]))]
            step += len(items)
            timeout = dice.choice([None, None, 0, 0.0002, 0.002])
            if len(items) == 1:
                count = int(bridge.produce(items[0], timeout))
            else:
                count = bridge.produce_many(items, timeout)
            self.oracle.told(items, count)
            self.look()
            if dice.random() < 0.02:
                check_accounts(bridge)
            if dice.random() < 0.01:
                self.flush(bridge)

    def flush(self, bridge: SyncBatchQueue[Item]) -> None:
        try:
            bridge.flush(10)
        except DeliveryError as error:
            if error.count < 1:
                self.oracle.faults.append(str(error))

    async def on_loop(self, producer: int) -> None:
        dice = random.Random(self.seed * 1000 + producer)
        step = 0
        while step < STEPS:
            items = [(producer, step + n) for n in range(dice.choice([1, 1, 3]))]
            step += len(items)
            if len(items) == 1 and dice.random() < 0.3:
                self.oracle.told(items, int(self.queue.produce_nowait(items[0])))
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(dice.choice([None, 0, 0.0002, 0.002])):
                    self.oracle.told(items, await self.queue.produce_many(items))
            except TimeoutError:
                self.oracle.unknown += items
            self.look()
            await asyncio.sleep(0)


@pytest.mark.real_time
@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("seed, buffer_size", [(1, 1), (2, 5)])
@pytest.mark.parametrize("closes_early", [False, True])
async def test_threads_and_tasks_with_time_limits_cancellations_and_failures(
    seed: int, buffer_size: int, *, closes_early: bool
) -> None:
    stress = Stress(seed, WhenFull.WAIT, buffer_size)
    await run(stress, closes_early=closes_early)


@pytest.mark.real_time
@pytest.mark.usefixtures("eager_switches")
async def test_the_same_where_a_full_partition_refuses() -> None:
    stress = Stress(3, WhenFull.DROP_NEWEST, 4)
    await run(stress, closes_early=False)


async def run(stress: Stress, *, closes_early: bool) -> None:
    queue, oracle = stress.queue, stress.oracle
    await queue.start()
    queue.add_handler(tuple, stress.consume)
    bridges = [SyncBatchQueue(queue) for _ in range(3)]
    calls: list[Any] = [
        in_background(stress.on_thread, bridges[n % 3], n) for n in range(THREADS)
    ]
    tasks = [
        asyncio.create_task(stress.on_loop(n)) for n in range(THREADS, THREADS + TASKS)
    ]
    left: list[Item] = []
    async with asyncio.timeout(25):
        if closes_early:
            await until(lambda: len(oracle.handled) > 100)
            left += await answer_of(in_background(bridges[0].shutdown, 10))
        await asyncio.gather(*tasks)
        await all_answers(calls)
        left += await queue.shutdown(10)
    stats = check_settled(queue)
    oracle.check(left)
    assert stats.handled == len(oracle.handled)
    assert stats.failed == len(oracle.failed)
