"""A handler's settings change while its queue runs: it is registered once more."""

import asyncio

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, Retry, RetryAfter
from batchqueue_async.testing import RecordingHandler
from tests.support.oracle import check_settled

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])


class Connection(RecordingHandler[int]):
    def on_open(self) -> None:
        self.calls.append("on_open")


async def test_one_that_is_registered_again_is_neither_closed_nor_opened() -> None:
    handler = Connection()
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler, linger=3600)
        await queue.produce(1)
        await asyncio.sleep(60)
        assert handler.batches == []
        queue.add_handler(int, handler, linger=10)
        await asyncio.sleep(60)
        assert handler.batches == [[1]]
        queue.add_handler(int, handler, max_batch=2)
        await queue.produce_many([2, 3, 4])
        await queue.flush()
        assert handler.batches == [[1], [2, 3], [4]]
        calls = [name for name in handler.calls if name in ("on_open", "on_close")]
        assert calls == ["on_open"]
    assert handler.calls[-1] == "on_close"
    check_settled(queue)


async def test_what_is_not_given_again_is_the_queues() -> None:
    handler = RecordingHandler[int]()
    async with BatchQueue[int]("q", BatchQueueConfig(linger=10, max_batch=5)) as queue:
        queue.add_handler(int, handler, linger=0, max_batch=1)
        queue.add_handler(int, handler)
        await queue.produce_many(range(6))
        await asyncio.sleep(1)
        assert handler.batches == [[0, 1, 2, 3, 4]]
        await asyncio.sleep(10)
        assert handler.batches[1:] == [[5]]


async def test_it_is_not_entered_twice_by_the_change() -> None:
    inside, most = 0, 0

    async def slow(batch: list[int]) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(1)
        inside -= 1
        queue.add_handler(int, slow, max_batch=batch[0] % 3 + 1)

    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, slow)
        for number in range(20):
            await queue.produce(number)
            await asyncio.sleep(0.3)
            queue.add_handler(int, slow, max_batch=number % 4 + 1)
        await queue.flush()
    assert most == 1
    check_settled(queue)


async def test_a_batch_that_waits_for_its_retry_keeps_its_settings() -> None:
    calls: list[int] = []

    async def store(batch: list[int]) -> None:
        calls.append(len(batch))
        if len(calls) == 1:
            raise RetryAfter(60)

    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, store, retry=Retry(attempts=2))
        await queue.produce_many(range(5))
        await asyncio.sleep(1)
        queue.add_handler(int, store, max_batch=2)
        await queue.produce_many(range(5))
        await queue.flush()
    assert calls == [5, 5, 2, 2, 1]
    check_settled(queue)
