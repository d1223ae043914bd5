"""`DrainTaskPolicy.adaptive` beside a server that throttles for a while."""

import asyncio
from dataclasses import dataclass

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    RetryAfter,
    round_robin,
)
from tests.support.oracle import check_accounts

ITEMS, SECONDS = 10, 0.05


@dataclass
class Server:
    """Refuses calls beyond a limit; others take 50 ms."""

    limit: int
    pause: float = SECONDS
    calls: int = 0

    async def consume(self, batch: list[int]) -> None:
        if self.calls >= self.limit:
            raise RetryAfter(self.pause)
        self.calls += 1
        try:
            await asyncio.sleep(SECONDS)
        finally:
            self.calls -= 1


@dataclass
class RateLimited(Server):
    """Takes 112 calls in each second; six drain tasks would make 120."""

    taken: int = 0
    second: int = 0

    async def consume(self, batch: list[int]) -> None:
        now = asyncio.get_running_loop().time()
        if int(now) != self.second:
            self.second, self.taken = int(now), 0
        if self.taken >= 112:
            raise RetryAfter(self.pause)
        self.taken += 1
        await asyncio.sleep(SECONDS)


def config_of(server: Server) -> BatchQueueConfig[int]:
    return BatchQueueConfig(
        consumer=server.consume,
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


async def test_it_handles_nine_tenths_of_what_is_allowed_in_each_phase() -> None:
    server = Server(6)
    async with BatchQueue("q", config_of(server)) as queue:
        feeding = asyncio.create_task(keep_full(queue))
        for server.limit in (6, 3, 6):
            await asyncio.sleep(26.0)
            before = queue.stats().handled
            await asyncio.sleep(20.0)
            rate = (queue.stats().handled - before) / 20.0
            assert rate > 0.9 * server.limit * ITEMS / SECONDS
        check_accounts(queue.stats())
        await queue.shutdown(0.0)
        await feeding


@pytest.mark.parametrize(
    "pause, throttled",
    [(1.0, 0.85), pytest.param(3.0, 0.55, marks=pytest.mark.slow)],
)
async def test_a_limit_with_long_waits_is_found_and_left_again(
    pause: float, throttled: float
) -> None:
    server = Server(6, pause)
    async with BatchQueue("q", config_of(server)) as queue:
        feeding = asyncio.create_task(keep_full(queue))
        for server.limit, part in ((6, 0.9), (3, throttled), (6, 0.9)):
            await asyncio.sleep(60.0)
            before = queue.stats().handled
            await asyncio.sleep(40.0)
            rate = (queue.stats().handled - before) / 40.0
            assert rate > part * server.limit * ITEMS / SECONDS
        await queue.shutdown(0.0)
        await feeding


async def test_waits_as_long_as_a_round_do_not_hide_what_they_cost() -> None:
    server = RateLimited(6, pause=1.0)
    async with BatchQueue("q", config_of(server)) as queue:
        feeding = asyncio.create_task(keep_full(queue))
        await asyncio.sleep(100.0)
        before = queue.stats().handled
        await asyncio.sleep(40.0)
        rate = (queue.stats().handled - before) / 40.0
        # The best fixed number is 5, since a call more makes others wait for a second.
        assert rate > 0.8 * 5 * ITEMS / SECONDS
        await queue.shutdown(0.0)
        await feeding


@pytest.mark.parametrize("after", [0.3, 1.0, 2.0, 3.02])
async def test_a_shutdown_in_the_middle_of_a_change_loses_nothing(after: float) -> None:
    server = Server(3)
    async with BatchQueue("q", config_of(server)) as queue:
        feeding = asyncio.create_task(keep_full(queue))
        await asyncio.sleep(after)
        await queue.flush()
        await asyncio.sleep(after)
        await queue.shutdown(60.0)
        await feeding
        check_accounts(queue.stats())
    stats = queue.stats()
    assert (stats.handled, stats.failed) == (stats.accepted, 0)


async def test_a_long_wait_for_a_server_is_not_idleness() -> None:
    server = Server(6, pause=1.0)
    async with BatchQueue("q", config_of(server)) as queue:
        feeding = asyncio.create_task(keep_full(queue))
        for server.limit in (6, 3, 6):
            await asyncio.sleep(30.0)
        limit = queue.stats().drain_task_limit
        assert limit is not None
        assert limit.throttled > 0
        assert limit.idle == 0
        await queue.shutdown(0.0)
        await feeding


async def test_it_says_in_one_sentence_what_it_did_and_why() -> None:
    server = Server(6)
    async with BatchQueue("q", config_of(server)) as queue:
        limit = queue.stats().drain_task_limit
        assert str(limit) == (
            "1 drain task works, 1 did before: nothing has been changed yet"
        )
        feeding = asyncio.create_task(keep_full(queue))
        await asyncio.sleep(2.5)
        assert str(queue.stats().drain_task_limit) == (
            "4 drain tasks work, 1 did before: more of them handled more items per "
            "second (changed 1 time for that)"
        )
        await queue.shutdown(0.0)
        await feeding
