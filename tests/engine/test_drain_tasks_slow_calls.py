"""`DrainTaskPolicy.adaptive` where a call takes longer than a round of rebalancing."""

import asyncio

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    round_robin,
)
from tests.support.oracle import check_accounts

ITEMS, SLOTS, MOST = 10, 6, 12


class Server:
    """Does some calls at once; the others wait in it, and one in so many is lost."""

    def __init__(self, seconds: float, lost: int = 0) -> None:
        self.seconds = seconds
        self._slots = asyncio.Semaphore(SLOTS)
        self._lost, self._calls = lost, 0

    async def consume(self, batch: list[int]) -> None:
        self._calls += 1
        is_lost = self._lost and self._calls % self._lost == 0
        async with self._slots:
            await asyncio.sleep(self.seconds)
        if is_lost:
            raise OSError

    @property
    def most(self) -> float:
        """Items per second."""
        return SLOTS * ITEMS / self.seconds


def config_of(server: Server) -> BatchQueueConfig[int]:
    return BatchQueueConfig(
        consumer=server.consume,
        drain_tasks=DrainTaskPolicy.adaptive(1, MOST),
        partitions=PartitionPolicy.fixed(MOST),
        selector=round_robin,
        max_batch=ITEMS,
        buffer_size=4 * ITEMS,
        retry=Retry(attempts=1_000, wait_initial=0.0),
        shutdown_timeout=0.0,
    )


async def keep_full(queue: BatchQueue[int]) -> None:
    while await queue.produce_many([1] * 100):
        pass


async def reached(queue: BatchQueue[int], learning: float, seconds: float) -> float:
    """Return the items per second that it handles after a while."""
    feeding = asyncio.create_task(keep_full(queue))
    await asyncio.sleep(learning)
    before = queue.stats().handled
    await asyncio.sleep(seconds)
    rate = (queue.stats().handled - before) / seconds
    check_accounts(queue)
    await queue.shutdown(0.0)
    await feeding
    return rate


@pytest.mark.parametrize("seconds", [0.2, 0.5, 1.0, 2.0, 5.0])
async def test_it_grows_however_long_a_call_takes(seconds: float) -> None:
    server = Server(seconds)
    async with BatchQueue("q", config_of(server)) as queue:
        rate = await reached(queue, 40 + 60 * seconds, 60 * seconds)
    assert rate > 0.85 * server.most


async def test_a_call_that_fails_now_and_then_does_not_keep_it_from_growing() -> None:
    server = Server(0.05, lost=5)
    async with BatchQueue("q", config_of(server)) as queue:
        rate = await reached(queue, 60.0, 30.0)
    assert rate > 0.85 * 0.8 * server.most


async def test_a_handler_that_never_returns_does_not_make_it_grow() -> None:
    server = Server(1e9)
    async with BatchQueue("q", config_of(server)) as queue:
        feeding = asyncio.create_task(keep_full(queue))
        await asyncio.sleep(200.0)
        limit = queue.stats().drain_task_limit
        assert limit is not None
        assert limit.drain_tasks <= 2
        await queue.shutdown(0.0)
        await feeding
