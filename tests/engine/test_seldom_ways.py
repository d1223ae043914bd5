"""Ways that few programs take: without them, no other test failed."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    by_key,
    fair_by,
    round_robin,
)
from batchqueue_async._engine.queue import parts_of
from tests.engine.until import until
from tests.support.oracle import check_settled
from tests.support.own_lines import own_lines
from tests.support.recording_handler import RecordingHandler

TWO = PartitionPolicy.fixed(2)


async def test_a_closed_queue_refuses_what_its_selector_raises_for() -> None:
    def key(item: int) -> int:
        raise ValueError(item)

    handler = RecordingHandler[int]()
    config = BatchQueueConfig(consumer=handler, selector=by_key(key), partitions=TWO)
    async with BatchQueue("q", config) as queue:
        pass
    assert not await queue.produce(1)
    assert not queue.produce_nowait(1)
    assert await queue.produce_many([1, 2]) == 0
    assert queue.stats().rejected_closed == 4


@pytest.mark.parametrize(
    "config",
    [
        BatchQueueConfig[Any](max_batch_bytes=100),
        BatchQueueConfig[Any](selector=fair_by(lambda _: 1)),
    ],
    ids=["sizes", "keys"],
)
async def test_items_without_a_handler_count_where_others_have_one(
    config: BatchQueueConfig[Any],
) -> None:
    async with asyncio.timeout(30.0), BatchQueue("q", config) as queue:
        queue.add_handler(bytes, RecordingHandler[bytes]())
        assert await queue.produce_many([b"a", "text", b"b"]) == 3
    stats = check_settled(queue)
    assert (stats.unhandled, stats.handled) == (1, 2)


async def test_a_batch_is_as_large_as_it_may_be_if_its_items_are_many() -> None:
    handler = RecordingHandler[bytes]()
    config = BatchQueueConfig[bytes](consumer=handler, max_batch_bytes=1000)
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many([b"x"] * 2500) == 2500
    assert [len(batch) for batch in handler.batches] == [1000, 1000, 500]


async def test_the_shortest_linger_holds_where_a_selector_mixes_types() -> None:
    """Also that of a handler which comes, or goes, after another one with a linger."""
    came: list[float] = []
    clock = asyncio.get_running_loop().time

    def consume(_: list[Any]) -> None:
        came.append(clock())

    config = BatchQueueConfig[Any](selector=round_robin, partitions=TWO)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume, linger=5.0)
        queue.add_handler(str, consume, linger=1.0)
        began = clock()
        assert await queue.produce(1)
        await until(lambda: came)
        assert came.pop() - began == pytest.approx(1.0)
        queue.remove_handler(str)
        began = clock()
        assert await queue.produce(1)
        await until(lambda: came)
        assert came.pop() - began == pytest.approx(5.0)


async def test_a_manager_is_closed_though_others_cancel_the_task_for_it() -> None:
    handled: list[int] = []

    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(1.0)
        handled.extend(batch)

    manager = BatchQueueManager()
    queue = await manager.create("q", BatchQueueConfig[int](consumer=consume))
    assert await queue.produce(1)
    closing = asyncio.create_task(manager.close())
    await asyncio.sleep(0.1)
    name = "closing of a manager's queues"
    (task,) = (each for each in asyncio.all_tasks() if each.get_name() == name)
    task.cancel()
    await closing
    assert handled == [1]
    check_settled(queue)


async def test_close_tells_of_what_was_for_a_caller_that_is_cancelled() -> None:
    """The queue had ended before `close` came to say that leftovers are to be told."""
    told: list[list[int]] = []

    async def stay(_: list[int]) -> None:
        await asyncio.sleep(100.0)

    async def take_time(_: list[int]) -> None:
        await asyncio.sleep(2.0)

    manager = BatchQueueManager()
    slow = await manager.create("slow", BatchQueueConfig[int](consumer=take_time))
    config = BatchQueueConfig[int](
        consumer=stay, on_error=lambda batch, _: told.append(batch)
    )
    first = await manager.create("first", config)
    assert await first.produce(1)
    assert await slow.produce(2)
    lister = asyncio.create_task(manager.shutdown_all(None))
    await asyncio.sleep(0.5)
    parts_of(first).lifecycle.shorten_deadline(0.0)
    await asyncio.sleep(0.5)
    closing = asyncio.create_task(manager.close(None))
    await asyncio.sleep(0.1)
    assert told == []
    lister.cancel()
    await closing
    assert told == [[1]]


async def test_a_timed_call_that_outlasts_its_queue_is_not_booked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def consume(batch: list[int]) -> None:
        for _ in batch * 3:
            try:
                await asyncio.sleep(1.0)
            except asyncio.CancelledError:
                continue

    config = BatchQueueConfig[int](consumer=consume, measure_handlers=True)
    queue = BatchQueue("q", config)
    await queue.start()
    assert await queue.produce(1)
    await asyncio.sleep(0.5)
    assert await queue.shutdown(0.0) == [1]
    caplog.clear()
    await asyncio.sleep(5.0)
    assert own_lines(caplog.records) == []
    check_settled(queue)


def test_a_loop_that_ends_alone_does_not_wait_for_rebalancing() -> None:
    """Nobody has cancelled its tasks, as `asyncio.run` does first."""
    config = BatchQueueConfig[int](
        consumer=RecordingHandler[int](),
        rebalancing=Rebalancing(interval=0.5),
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=TWO,
    )

    async def begin() -> None:
        await BatchQueue("q", config).start()
        await asyncio.sleep(0.01)

    async def end() -> None:
        async with asyncio.timeout(5.0):
            await loop.shutdown_asyncgens()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    with pytest.warns(ResourceWarning, match="ended without its shutdown"):
        loop.run_until_complete(end())
    loop.close()


class Unstoppable:
    """It goes on for three seconds, whoever cancels it."""

    tick_every = 0.1

    async def consume(self, _: list[int]) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + 3.0
        while clock() < until:
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                continue

    def on_tick(self) -> None:
        """Do nothing: it is enough that it is due."""


async def test_a_tick_of_a_handler_that_cannot_be_stopped_holds_up_no_other() -> None:
    clock = asyncio.get_running_loop().time
    came: list[float] = []
    config = BatchQueueConfig[Any](partitions=TWO)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, Unstoppable(), handler_timeout=0.5)
        queue.add_handler(str, lambda _: came.append(clock()))
        assert await queue.produce(1)
        await asyncio.sleep(2.0)
        began = clock()
        assert await queue.produce("x")
        await until(lambda: came)
        assert came[0] - began < 0.2
        await asyncio.sleep(2.0)


class TakesTime:
    """A call takes three seconds; it ticks every five."""

    tick_every = 5.0

    async def consume(self, _: list[Any]) -> None:
        await asyncio.sleep(3.0)

    def on_tick(self) -> None:
        """Do nothing: it is enough that it is due."""


async def test_a_tick_that_has_to_wait_for_a_call_holds_up_no_other_handler() -> None:
    clock = asyncio.get_running_loop().time
    handler, came = TakesTime(), list[float]()
    config = BatchQueueConfig[Any](partitions=TWO, drain_tasks=DrainTaskPolicy.fixed(2))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        queue.add_handler(str, handler)
        queue.add_handler(bytes, lambda _: came.append(clock()))
        assert (
            queue.partition_of(1) == queue.partition_of(b"") != queue.partition_of("")
        )
        await asyncio.sleep(4.0)
        assert await queue.produce("x")
        await asyncio.sleep(1.5)
        began = clock()
        assert await queue.produce(b"x")
        await until(lambda: came)
        assert came[0] - began < 0.2
