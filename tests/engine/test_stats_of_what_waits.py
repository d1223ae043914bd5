"""`oldest_age` and `waiting_producers`: is anybody kept waiting, and for how long."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartitionPolicy,
    Retry,
    SyncBatchQueue,
    WhenFull,
    by_type,
    fair_by,
)
from batchqueue_async._engine.partitions.ages import MOST_SAMPLES
from batchqueue_async._engine.queue import parts_of
from tests.bridge.background import PATIENCE, answer_of, in_background
from tests.engine.until import turns, until

SECONDS = 5.0


class Gate:
    """A handler that takes one batch each time it is let."""

    def __init__(self) -> None:
        self.allowed = asyncio.Semaphore(0)

    async def consume(self, batch: list[Any]) -> None:
        await self.allowed.acquire()

    async def let_one(self) -> None:
        self.allowed.release()
        await turns(10)


@asynccontextmanager
async def gated(
    gate: Gate,
    **settings: Any,  # noqa: ANN401 - of any kind
) -> AsyncIterator[BatchQueue[Any]]:
    """A queue whose handler is busy with a first item."""
    async with BatchQueue("q", BatchQueueConfig[Any](consumer=gate, **settings)) as q:
        await q.produce(0)
        await until(lambda: q.stats().in_flight == 1)
        yield q
        for _ in range(1000):
            gate.allowed.release()


async def test_nothing_waits_at_first_and_at_the_end() -> None:
    queue = BatchQueue[int]("q", BatchQueueConfig(consumer=lambda _: None))
    assert queue.stats().oldest_age == 0.0
    async with queue:
        await queue.produce_many(range(10))
        await queue.flush()
        await asyncio.sleep(SECONDS)
        assert queue.stats().oldest_age == 0.0
        assert queue.stats().waiting_producers == 0


async def put_one(queue: BatchQueue[int]) -> None:
    await queue.produce(1)


async def put_one_at_once(queue: BatchQueue[int]) -> None:
    queue.produce_nowait(1)


async def put_many(queue: BatchQueue[int]) -> None:
    await queue.produce_many([1, 2])


async def put_anywhere(queue: BatchQueue[int]) -> None:
    queue.offer(1)


@pytest.mark.parametrize("put", [put_one, put_one_at_once, put_many, put_anywhere])
@pytest.mark.parametrize("partitions", [1, 3])
async def test_the_oldest_counts_however_it_came(
    put: Callable[[BatchQueue[int]], Any], partitions: int
) -> None:
    gate = Gate()
    async with gated(gate, partitions=PartitionPolicy.fixed(partitions)) as queue:
        await asyncio.sleep(SECONDS)
        assert queue.stats().oldest_age == 0.0, "what is in flight does not wait"
        await put(queue)
        await asyncio.sleep(SECONDS)
        await put(queue)
        await asyncio.sleep(SECONDS)
        assert queue.stats().oldest_age == pytest.approx(2 * SECONDS)


@pytest.mark.parametrize("selector", [by_type, fair_by(lambda _: 1)])
async def test_what_waits_for_its_next_attempt_waits(
    selector: Callable[..., Any],
) -> None:
    """The sink is down and nothing more comes: the alarm is to ring all the same."""
    is_down = True

    def write(batch: list[int]) -> None:
        if is_down:
            raise OSError

    config = BatchQueueConfig[int](
        consumer=write,
        retry=Retry(attempts=100),
        selector=selector,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([1, 2])
        await asyncio.sleep(100.0)
        (stats,) = queue.stats().partitions
        assert (stats.waiting, stats.in_flight) == (0, 2)
        assert stats.oldest_age == pytest.approx(100.0, abs=1.0)
        assert " in_flight=2 oldest_age=" in repr(queue)
        is_down = False
        await asyncio.sleep(20.0)
        assert queue.stats().oldest_age == 0.0


async def test_each_partition_has_its_own() -> None:
    gate = Gate()
    async with gated(
        gate,
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _: item % 2,
    ) as queue:
        await queue.produce(0)
        await asyncio.sleep(SECONDS)
        await queue.produce(1)
        await asyncio.sleep(1.0)
        stats = queue.stats()
        assert [each.oldest_age for each in stats.partitions] == [SECONDS + 1, 1]
        assert stats.oldest_age == SECONDS + 1


async def test_with_linger_it_is_the_same() -> None:
    config = BatchQueueConfig[int](consumer=lambda _: None, linger=60.0)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await asyncio.sleep(SECONDS)
        await queue.produce(2)
        assert queue.stats().oldest_age == pytest.approx(SECONDS)


async def test_what_a_take_leaves_is_never_said_to_be_younger() -> None:
    gate = Gate()
    async with gated(gate, max_batch=2) as queue:
        await queue.produce_many(range(4))
        await asyncio.sleep(SECONDS)
        await gate.let_one()
        assert queue.stats().oldest_age == pytest.approx(SECONDS), (
            "two of four are left"
        )
        await queue.produce_many(range(2))
        await asyncio.sleep(SECONDS)
        await gate.let_one()
        assert queue.stats().waiting == 2
        # Exactly when these came is not noted: after the take that left the others.
        assert queue.stats().oldest_age == pytest.approx(SECONDS)


async def test_what_has_displaced_others_is_as_young_as_it_is() -> None:
    gate = Gate()
    async with gated(gate, buffer_size=3, when_full=WhenFull.DROP_OLDEST) as queue:
        for second in range(10):
            await queue.produce(second)
            await asyncio.sleep(1.0)
        assert queue.stats().dropped == 7
        assert queue.stats().oldest_age == pytest.approx(3.0)


async def test_many_small_takes_leave_few_samples() -> None:
    gate = Gate()
    async with gated(gate, max_batch=1, buffer_size=1000) as queue:
        await queue.produce_many(range(1000))
        for _ in range(300):
            await asyncio.sleep(1.0)
            await gate.let_one()
            await queue.produce(1)
        assert queue.stats().oldest_age == pytest.approx(300.0)
        samples = parts_of(queue).partitions[0].ages._samples
        assert samples is not None
        assert 1 < len(samples) <= MOST_SAMPLES


@pytest.mark.real_time
async def test_what_a_thread_put_has_an_age() -> None:
    async with gated(Gate()) as queue:
        bridge = SyncBatchQueue(queue)
        await answer_of(in_background(bridge.produce, 1))
        assert 0.0 < queue.stats().oldest_age < PATIENCE
        before = queue.stats().oldest_age
        await asyncio.sleep(0.05)
        assert queue.stats().oldest_age - before >= 0.04


async def test_producers_that_wait_are_counted() -> None:
    gate = Gate()
    async with gated(gate, buffer_size=1) as queue:
        await queue.produce(1)
        assert queue.stats().waiting_producers == 0
        tasks = [asyncio.create_task(queue.produce(each)) for each in range(3)]
        await turns()
        assert queue.stats().waiting_producers == 3
        tasks[0].cancel()
        await turns()
        assert queue.stats().waiting_producers == 2
        assert queue.stats().partitions[0].waiting_producers == 2
        await gate.let_one()
        assert queue.stats().waiting_producers == 1


@pytest.mark.real_time
async def test_producers_on_threads_are_counted_too() -> None:
    gate = Gate()
    async with gated(gate, buffer_size=1) as queue:
        bridge = SyncBatchQueue(queue)
        await queue.produce(1)
        task = asyncio.create_task(queue.produce(2))
        answer = in_background(bridge.produce, 3)
        await until(lambda: queue.stats().waiting_producers == 2)
        for _ in range(10):
            gate.allowed.release()
        assert await answer_of(answer)
        await task
        assert queue.stats().waiting_producers == 0


async def test_repr_uses_the_same_words_as_stats() -> None:
    gate = Gate()
    async with gated(gate, buffer_size=2) as queue:
        assert repr(queue) == "<BatchQueue 'q' running waiting=0 in_flight=1>"
        await queue.produce_many([1, 2])
        task = asyncio.create_task(queue.produce(3))
        await asyncio.sleep(SECONDS)
        assert repr(queue) == (
            "<BatchQueue 'q' running waiting=2 in_flight=1 oldest_age=5 "
            "waiting_producers=1>"
        )
        for _ in range(10):
            gate.allowed.release()
        await task


async def test_while_a_buffer_is_never_empty_the_age_is_that_of_what_waits() -> None:
    """Few items, of which one is taken every 20 ms: none waits for long."""

    async def consume(_: list[int]) -> None:
        await asyncio.sleep(0.02)

    config = BatchQueueConfig[int](consumer=consume, max_batch=1)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(3))
        worst = 0.0
        for item in range(120):
            await until(lambda: queue.stats().waiting < 3)
            await queue.produce(item)
            worst = max(worst, queue.stats().oldest_age)
    # 0.08 s in truth; as old as the time between two samples at most.
    assert 0.05 < worst < 0.2
