"""`max_batch="auto"`: the engine asks for the size of batches, and tells what came."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchLimit,
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    PartitionPolicy,
    Retry,
    RetryAfter,
    SyncBatchQueue,
    round_robin,
)
from tests.support.oracle import check_accounts

ITEMS = 100_000


class Server:
    """Takes 2 ms for a call and 0.1 ms for an item; refuses more than `most`."""

    def __init__(self, most: int = 10**9) -> None:
        self.most = most
        self.item = 1e-4
        self.sizes: list[int] = []
        self.got: list[int] = []

    async def consume(self, batch: list[Any]) -> None:
        if len(batch) > self.most:
            await asyncio.sleep(0.001)
            raise RetryAfter(0.1)
        self.sizes.append(len(batch))
        await asyncio.sleep(0.002 + self.item * len(batch))
        self.got += batch


def limit_of(queue: BatchQueue[Any], handler: int = 0) -> BatchLimit:
    limit = queue.stats().handlers[handler].limit
    assert limit is not None
    return limit


async def test_batches_grow_to_what_pays() -> None:
    server = Server()
    config = BatchQueueConfig(consumer=server.consume, max_batch="auto")
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(ITEMS))
    # 2 ms for each call are a tenth of a batch of 180 items.
    assert 180 < limit_of(queue).max_batch < 1_000
    assert max(server.sizes) < 2_000
    told = limit_of(queue)
    assert told.faster > 3
    assert told.reason in {"faster", "no_gain"}
    assert server.got == [*range(ITEMS)]


async def test_it_is_off_by_default() -> None:
    async with BatchQueue("q", BatchQueueConfig(consumer=Server().consume)) as queue:
        await queue.produce(1)
    assert queue.stats().handlers[0].limit is None


async def test_what_is_tried_again_is_cut_to_the_limit_of_then() -> None:
    server = Server()
    retry = Retry(attempts=12, wait_initial=0.0)
    config = BatchQueueConfig(consumer=server.consume, max_batch="auto", retry=retry)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(30_000))
        await queue.flush()
        assert limit_of(queue).max_batch > 100
        server.most = 20
        await queue.produce_many(range(30_000, 40_000))
        await queue.flush()
        check_accounts(queue.stats())
    # None is lost, in their order, although no batch of before would be taken.
    assert server.got == [*range(40_000)]
    assert queue.stats().failed == 0
    assert limit_of(queue).max_batch <= 20
    assert limit_of(queue).throttled >= 3
    assert queue.stats().retried > 0


async def test_a_handler_may_have_it_alone() -> None:
    small, large = Server(), Server()
    async with BatchQueue[Any]("q", BatchQueueConfig(max_batch=7)) as queue:
        queue.add_handler(int, small.consume)
        queue.add_handler(str, large.consume, max_batch="auto")
        for number in range(200):
            await queue.produce_many([number, *("x" * 500)])
    assert max(small.sizes) <= 7
    assert max(large.sizes) > 50
    assert queue.stats().handlers[0].limit is None
    assert limit_of(queue, 1).max_batch > 50


async def test_handlers_that_share_a_partition_do_not_starve_each_other() -> None:
    first, second = Server(), Server()
    async with BatchQueue[Any]("q", BatchQueueConfig(max_batch="auto")) as queue:
        queue.add_handler(int, first.consume)
        queue.add_handler(str, second.consume)
        for _ in range(100):
            await queue.produce_many([1, "x"] * 500)
    for index in (0, 1):
        assert limit_of(queue, index).max_batch > 150


async def test_a_removed_handler_takes_its_limit_along() -> None:
    server = Server()
    async with BatchQueue[Any]("q", BatchQueueConfig(max_batch="auto")) as queue:
        queue.add_handler(int, server.consume)
        await queue.produce_many(range(20_000))
        await queue.flush()
        learnt = limit_of(queue).max_batch
        queue.add_handler(int, Server().consume)
        assert limit_of(queue).max_batch < learnt
        queue.remove_handler(int)
        await queue.produce_many(range(100))
        with pytest.raises(DeliveryError, match="100 failures"):
            await queue.flush()
        assert queue.stats().unhandled == 100
        check_accounts(queue.stats())


async def test_what_lingers_is_due_at_the_limit() -> None:
    server = Server()
    config = BatchQueueConfig(consumer=server.consume, max_batch="auto", linger=60.0)
    async with BatchQueue("q", config) as queue:
        for number in range(6_000):
            await asyncio.sleep(0.0005)
            await queue.produce(number)
        # Full batches went on their way, one after the other.
        assert queue.stats().waiting < 1_000
        assert limit_of(queue).max_batch > 60


async def test_it_never_exceeds_the_buffer() -> None:
    server = Server()
    server.item = 0.0
    config = BatchQueueConfig(consumer=server.consume, max_batch="auto", buffer_size=50)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(20_000))
    assert max(server.sizes) == 50


async def test_the_sizes_of_items_still_bound_a_batch() -> None:
    server = Server()
    config = BatchQueueConfig(
        consumer=server.consume,
        max_batch="auto",
        size_of=lambda _: 1,
        max_batch_bytes=40,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(5_000))
    assert max(server.sizes) <= 40
    assert server.got == [*range(5_000)]


async def test_one_limit_for_all_partitions_of_a_consumer() -> None:
    server = Server()
    config = BatchQueueConfig(
        consumer=server.consume,
        max_batch="auto",
        partitions=PartitionPolicy.fixed(4),
        selector=round_robin,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(ITEMS))
    assert 150 < limit_of(queue).max_batch < 1_000
    assert sorted(server.got) == [*range(ITEMS)]


@pytest.mark.parametrize("wrong", ["Auto", "9", ""])
def test_other_words_are_refused(wrong: str) -> None:
    rule = r'^max_batch must be an int, "auto" or None, got '
    with pytest.raises(TypeError, match=rule):
        BatchQueueConfig[int](max_batch=wrong)  # type: ignore[arg-type]


@pytest.mark.real_time
async def test_threads_may_ask_for_it() -> None:
    got: list[int] = []
    async with BatchQueue[Any]("q") as queue:
        sync = SyncBatchQueue(queue)

        def on_a_thread() -> None:
            sync.add_handler(int, got.extend, max_batch="auto")
            sync.produce(1)

        await asyncio.to_thread(on_a_thread)
    assert got == [1]
    assert queue.stats().handlers[0].limit is not None
