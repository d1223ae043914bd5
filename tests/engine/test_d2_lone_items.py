"""D2: a lone item is not kept waiting for company; a stream still makes batches."""

import asyncio

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async._engine.draining.linger_and_nap import Gathering

Times = list[float]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_who_waits_for_the_answer_before_sending_again_is_not_held_up() -> None:
    waits: Times = []
    done = asyncio.Event()

    def consume(_: list[int]) -> None:
        done.set()

    async with BatchQueue("q", BatchQueueConfig[int](consumer=consume)) as queue:
        for item in range(2_000):
            began = now()
            await queue.produce(item)
            await done.wait()
            done.clear()
            waits.append(now() - began)
    waited = [wait for wait in waits if wait > 0]
    # It is tried now and then, ever more rarely: after 16, 32, 64, ... of them.
    assert 0 < len(waited) < 10
    assert max(waited) <= 0.0011


async def test_a_stream_of_single_items_comes_in_batches() -> None:
    batches: list[int] = []
    config = BatchQueueConfig[int](consumer=lambda batch: batches.append(len(batch)))
    async with BatchQueue("q", config) as queue:
        for item in range(2_000):
            await queue.produce(item)
            await asyncio.sleep(0.000_1)
    assert sum(batches) == 2_000
    # The first ones come singly; a millisecond's items are ten.
    assert sum(batches[30:]) / len(batches[30:]) > 5


async def test_after_a_batch_an_item_waits_for_a_millisecond_at_most() -> None:
    handled: Times = []
    config = BatchQueueConfig[int](consumer=lambda _: handled.append(now()))
    async with BatchQueue("q", config) as queue:
        await asyncio.sleep(1.0)
        await queue.produce_many([1, 2, 3])
        await asyncio.sleep(0.000_1)
        began = now()
        await queue.produce(4)
        await asyncio.sleep(1.0)
        assert 0 < handled[-1] - began <= 0.001
        # That was alone, so the next one is not held up.
        began = now()
        await queue.produce(5)
        await asyncio.sleep(1.0)
        assert handled[-1] == began


def test_lone_items_that_come_slowly_are_never_made_to_wait() -> None:
    gathering = Gathering(shortest=0.001)
    for number in range(1_000):
        gathering.delivered(1, started=0.002 * number)
        assert not gathering.pays
