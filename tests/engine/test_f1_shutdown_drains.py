"""F1: from the start of shutdown nothing gets in; what was accepted is handled."""

import asyncio
from itertools import count
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    round_robin,
)
from tests.engine.every_loop import every_loop
from tests.engine.stalled import stalled_queue
from tests.engine.until import turns
from tests.support.oracle import check_accounts, check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


async def test_everything_accepted_is_handled_before_it_returns() -> None:
    handler = RecordingHandler[int](delay=0.001)
    config = BatchQueueConfig[int](max_batch=10)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce_many(range(100)) == 100
        assert await queue.shutdown() == []
        assert handler.handled == list(range(100))
    check_settled(queue)


async def test_all_partitions_and_drain_tasks_are_drained() -> None:
    handler = RecordingHandler[int](delay=0.001)
    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(7),
        selector=round_robin,
        consumer=handler,
        max_batch=3,
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(200)) == 200
    assert sorted(handler.handled) == list(range(200))
    check_settled(queue)


@virtual
async def test_it_ends_linger_and_nap_at_once() -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[int](linger=1000.0, idle=IdleBackoff(100.0, 1000.0))
    loop = asyncio.get_running_loop()
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        await turns()
        await queue.produce(1)
        began = loop.time()
    assert handler.handled == [1]
    assert loop.time() == began


async def test_produce_returns_false_from_the_first_moment_on() -> None:
    async with stalled_queue(buffer_size=5, max_batch=1) as stalled:
        queue = stalled.queue
        closing = asyncio.create_task(queue.shutdown())
        await asyncio.sleep(0)
        assert not queue.is_running
        assert not await queue.produce(7)
        assert not queue.produce_nowait(7)
        assert await queue.produce_many([7, 8]) == 0
        assert await queue.produce_many(iter([7, 8])) == 0
        assert queue.stats().rejected == queue.stats().rejected_closed == 6
        stalled.gate.set()
        assert await closing == []
        assert not await queue.produce(7)
        assert 7 not in stalled.handler.items


async def test_waiting_producers_wake_with_false() -> None:
    """The original's D7: one lost its item with True, the others hung for ever."""
    async with stalled_queue(buffer_size=2) as stalled:
        producers = [await stalled.wait_to_produce(100 + i) for i in range(5)]
        closing = asyncio.create_task(stalled.queue.shutdown())
        await turns()
        assert [producer.result() for producer in producers] == [False] * 5
        assert check_accounts(stalled.queue).rejected == 5
        assert stalled.queue.stats().rejected_closed == 5
        stalled.gate.set()
        assert await closing == []
    assert stalled.handler.handled == [0, 1, 2]


async def test_a_waiting_produce_many_returns_what_was_accepted() -> None:
    async with stalled_queue(buffer_size=2) as stalled:
        queue = stalled.queue
        many = asyncio.create_task(queue.produce_many([10, 11, 12, 13, 14, 15, 16]))
        await turns()
        stalled.gate.set()
        stalled.handler.gate = asyncio.Event()
        await stalled.handler.entered()
        await turns()
        closing = asyncio.create_task(queue.shutdown())
        await turns()
        accepted = await many
        assert 0 < accepted < 7
        stalled.handler.gate.set()
        assert await closing == []
    assert (
        stalled.handler.handled == [0, 1, 2, 10, 11, 12, 13, 14, 15, 16][: 3 + accepted]
    )
    assert stalled.queue.stats().rejected == 7 - accepted


async def test_a_granted_slot_at_shutdown_is_not_a_lost_item() -> None:
    """`shutdown` at every tick around the grant: True means handled, False not."""
    for tick in count():
        async with stalled_queue(buffer_size=1) as stalled:
            producers = [await stalled.wait_to_produce(10 + i) for i in range(4)]
            stalled.gate.set()
            for _ in range(tick):
                await asyncio.sleep(0)
            was_early = not producers[-1].done()
            assert await stalled.queue.shutdown() == []
            results = await asyncio.gather(*producers)
        accepted = [10 + i for i, result in enumerate(results) if result]
        assert stalled.handler.handled == [0, 1, *accepted]
        if not was_early:
            break
    assert tick > 5


async def test_a_produce_that_races_shutdown_is_all_or_nothing() -> None:
    handler = RecordingHandler[int]()
    queue = BatchQueue[int]("q")
    await queue.start()
    queue.add_handler(int, handler)
    producers = [asyncio.create_task(queue.produce(i)) for i in range(10)]
    closing = asyncio.create_task(queue.shutdown())
    more = [asyncio.create_task(queue.produce(i)) for i in range(10, 20)]
    assert await closing == []
    results = await asyncio.gather(*producers, *more)
    assert handler.handled == [i for i, result in enumerate(results) if result]


async def test_a_chain_drains_from_its_first_queue_to_its_last() -> None:
    """A handler may wait for room in the next queue while its own one closes."""
    last = RecordingHandler[int](delay=0.001)
    async with BatchQueue("second", BatchQueueConfig[int](buffer_size=3)) as second:
        second.add_handler(int, last)

        async def forward(batch: list[int]) -> None:
            assert await second.produce_many(batch) == len(batch)

        async with BatchQueue[int]("first") as first:
            first.add_handler(int, forward)
            await first.produce_many(range(50))
    assert last.handled == list(range(50))


async def test_items_of_a_type_without_handler_do_not_hold_it_up() -> None:
    queue = BatchQueue[object]("q")
    await queue.start()
    await queue.produce_many(["a", "b"])
    assert await queue.shutdown() == []
    assert check_settled(queue).unhandled == 2


async def test_a_handler_that_always_fails_does_not_hold_it_up() -> None:
    handler = RecordingHandler[int](fail_when=lambda _: ValueError("always"))
    config = BatchQueueConfig[int](max_batch=1)
    queue = BatchQueue("q", config)
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce_many([1, 2, 3])
    assert await queue.shutdown() == []
    assert check_settled(queue).failed == 3


class TestOnClose:
    async def test_once_after_the_last_batch(self) -> None:
        handler = RecordingHandler[int](delay=0.001)
        async with BatchQueue("q", BatchQueueConfig[int](max_batch=1)) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([1, 2, 3])
        assert handler.calls[-1] == "on_close"
        assert handler.close_calls == 1
        assert handler.handled == [1, 2, 3]
        assert handler.max_concurrency == 1

    async def test_once_for_a_handler_of_several_types(self) -> None:
        handler = RecordingHandler[Any]()
        async with BatchQueue[object]("q") as queue:
            queue.add_handler(int, handler)
            queue.add_handler(str, handler)
        assert handler.close_calls == 1

    async def test_once_for_a_consumer_with_several_drain_tasks(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](
            drain_tasks=DrainTaskPolicy.fixed(4),
            partitions=PartitionPolicy.fixed(4),
            consumer=handler,
        )
        async with BatchQueue("q", config):
            pass
        assert handler.close_calls == 1
        assert handler.calls[-1] == "on_close"

    async def test_of_all_handlers_only_when_all_is_drained(self) -> None:
        """A handler's last words may depend on what other handlers did."""
        slow = RecordingHandler[str](delay=0.01)
        seen: list[list[str]] = []

        class Closing(RecordingHandler[int]):
            async def on_close(self) -> None:
                seen.append(list(slow.handled))

        config = BatchQueueConfig[object](
            drain_tasks=DrainTaskPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, Closing())
            queue.add_handler(str, slow)
            await queue.produce("a")
        assert seen == [["a"]]

    async def test_it_may_produce_into_another_queue(self) -> None:
        last = RecordingHandler[str]()
        async with BatchQueue[str]("other") as other:
            other.add_handler(str, last)

            class Closing(RecordingHandler[int]):
                async def on_close(self) -> None:
                    assert await other.produce("last words")

            async with BatchQueue[int]("q") as queue:
                queue.add_handler(int, Closing())
        assert last.handled == ["last words"]

    async def test_its_own_queue_refuses_its_items(self) -> None:
        answers: list[bool] = []

        class Closing(RecordingHandler[int]):
            async def on_close(self) -> None:
                answers.append(await queue.produce(1))

        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, Closing())
        assert answers == [False]

    async def test_one_that_raises_is_logged_and_the_others_follow(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Failing(RecordingHandler[int]):
            async def on_close(self) -> None:
                message = "cannot close"
                raise ValueError(message)

        other = RecordingHandler[str]()
        async with BatchQueue[object]("q") as queue:
            queue.add_handler(int, Failing())
            queue.add_handler(str, other)
        assert other.close_calls == 1
        assert "on_close" in caplog.text
        assert "cannot close" in caplog.text

    async def test_a_removed_handler_gets_it_before_the_end_and_once(self) -> None:
        handler = RecordingHandler[int]()
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await queue.flush()
            assert queue.remove_handler(int)
            await turns()
            assert handler.close_calls == 1
        assert handler.close_calls == 1

    async def test_removed_right_before_shutdown_it_still_gets_it(self) -> None:
        handler = RecordingHandler[int]()
        queue = BatchQueue[int]("q")
        await queue.start()
        queue.add_handler(int, handler)
        queue.remove_handler(int)
        await queue.shutdown()
        assert handler.close_calls == 1

    async def test_a_sync_one_is_called_too(self) -> None:
        calls: list[str] = []

        class Plain:
            def consume(self, batch: list[int]) -> None:
                calls.append("consume")

            def on_close(self) -> None:
                calls.append("on_close")

        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, Plain())
            await queue.produce(1)
        assert calls == ["consume", "on_close"]
