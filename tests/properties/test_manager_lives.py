"""Managers whose queues come and go, with cancellations: each item ends exactly once.

Queues of a chain share drain tasks. They are shut down, one or all, closed, flushed and
made again under their names meanwhile, and whoever asks for that is cancelled. What a
list has, what `on_error` gets and what was handled is all that was accepted.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    SharedDrainTasks,
    round_robin,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.properties.profile import EXAMPLES
from tests.support.oracle import check_settled
from tests.support.thorough import examples

SEEDS = EXAMPLES or examples(900)
LEVELS = 3


class Lives:
    """A chain of queues, its producers, and what becomes of each item."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.manager = BatchQueueManager(
            shutdown_timeout=self.chance.choice([0.0, 0.1, 5.0])
        )
        self.chain: list[BatchQueue[int]] = []
        self.all: list[BatchQueue[int]] = []
        self.items = 0
        self.accepted: list[int] = []
        self.ended: list[int] = []
        self.uncertain: list[tuple[int, list[int]]] = []

    async def play(self) -> None:
        chance = self.chance
        for level in range(LEVELS):
            await self._create(level)
        await asyncio.gather(*(self._feed() for _ in range(4)), self._trouble())
        self._take(await self.manager.shutdown_all(chance.choice([0.0, 0.1, None])))
        for queue in self.all:
            self.ended += await queue.shutdown(0.0)
        self._check()

    async def _create(self, level: int) -> None:
        chance = self.chance
        queue: BatchQueue[int] = await self.manager.create(
            f"level {level}",
            BatchQueueConfig(
                consumer=self._handler(level),
                on_error=lambda batch, _: self.ended.extend(batch),
                drain_tasks=SharedDrainTasks("all", DrainTaskPolicy.fixed(1)),
                partitions=PartitionPolicy.fixed(chance.randint(1, 2)),
                selector=round_robin,
                buffer_size=chance.randint(1, 3),
                max_batch=chance.choice([None, 1, 2]),
                linger=chance.choice([0.0, 0.05]),
                handler_timeout=chance.choice([None, 0.05]),
                retry=chance.choice([Retry(), Retry(2, wait_initial=0.01)]),
            ),
        )
        self.chain[level : level + 1] = [queue]
        self.all.append(queue)

    def _handler(self, level: int) -> Callable[[list[int]], Awaitable[None]]:
        chance = self.chance

        async def consume(batch: list[int]) -> None:
            await asyncio.sleep(chance.choice([0.0, 0.0, 0.01, 0.2]))
            if level + 1 < LEVELS and chance.random() < 0.7:
                await self._produce(self.chain[level + 1], len(batch))
            if chance.random() < 0.1:
                raise OSError
            self.ended += batch

        return consume

    async def _produce(self, queue: BatchQueue[int], count: int) -> None:
        first = self.items
        self.items += count
        items = [*range(first, self.items)]
        try:
            accepted = await queue.produce_many(items)
        except BaseException as error:
            self.uncertain.append((getattr(error, "accepted", 0), items))
            raise
        if accepted == count:
            self.accepted += items
        else:
            self.uncertain.append((accepted, items))

    async def _feed(self) -> None:
        chance = self.chance
        for _ in range(chance.randint(1, 12)):
            within = chance.choice([0.0, 0.01, 10.0])
            with anyio.move_on_after(within), suppress(TimeoutError):
                async with asyncio.timeout(chance.choice([0.005, 10.0])):
                    await self._produce(chance.choice(self.chain), chance.randint(1, 4))
            await asyncio.sleep(chance.choice([0.0, 0.01]))

    async def _trouble(self) -> None:
        chance = self.chance
        for _ in range(chance.randint(0, 6)):
            await asyncio.sleep(chance.random() * 0.1)
            level = chance.randrange(LEVELS)
            act = asyncio.create_task(self._act(level))
            if chance.random() < 0.5:
                await asyncio.sleep(chance.choice([0.0, 0.001, 0.05]))
                act.cancel()
            await asyncio.wait({act})
            if not act.cancelled():
                act.result()
            for again in range(LEVELS):
                if not self.chain[again].is_running:
                    await self._create(again)

    async def _act(self, level: int) -> None:
        timeout = self.chance.choice([0.0, 0.01, 1.0])
        match self.chance.randrange(4):
            case 0:
                self.ended += await self.manager.shutdown(f"level {level}", timeout)
            case 1:
                self._take(await self.manager.shutdown_all(timeout))
            case 2:
                await self.manager.close(timeout)
            case _:
                with suppress(DeliveryError, TimeoutError):
                    await self.manager.flush(timeout)

    def _take(self, lists: dict[str, list[int]]) -> None:
        for items in lists.values():
            self.ended += items

    def _check(self) -> None:
        ended = Counter(self.ended)
        assert set(ended.values()) <= {1}, "an item ended twice"
        assert ended.keys() >= {*self.accepted}, "an item is lost"
        for count, items in self.uncertain:
            assert sum(each in ended for each in items) == count
        of_all = sum(check_settled(queue).accepted for queue in self.all)
        assert of_all == len(self.ended)
        assert not self.manager.queues
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "batchqueue_async")


@pytest.mark.parametrize("part", range(3))
def test_each_item_of_queues_that_come_and_go_ends_once(part: int) -> None:
    for seed in range(part, SEEDS, 3):
        try:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                runner.run(Lives(seed).play())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
