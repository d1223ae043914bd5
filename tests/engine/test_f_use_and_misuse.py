"""F: where and when a queue may be used, and what it says otherwise."""

import asyncio
import threading
from collections.abc import Callable, Iterable

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    PartitionPolicy,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import tasks_of
from tests.support.recording_handler import RecordingHandler


def outcome_in_thread(call: Callable[[], object]) -> BaseException | object:
    """What the call raises or returns on another thread."""
    results: list[BaseException | object] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - that is the result
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


@every_loop
class TestBeforeStart:
    async def test_produce_raises(self) -> None:
        queue = BatchQueue[int]("q")
        with pytest.raises(BatchQueueError, match="not started"):
            await queue.produce(1)
        with pytest.raises(BatchQueueError, match="not started"):
            queue.produce_nowait(1)
        with pytest.raises(BatchQueueError, match="not started"):
            await queue.produce_many([1])
        with pytest.raises(BatchQueueError, match="not started"):
            await queue.produce_many(iter([1]))
        stats = queue.stats()
        assert (stats.accepted, stats.rejected) == (0, 0)

    @pytest.mark.parametrize("partitions", [1, 3])
    @pytest.mark.parametrize("nothing", [[], (), iter(())], ids=["[]", "()", "iter"])
    async def test_produce_many_of_nothing_raises_too(
        self, partitions: int, nothing: Iterable[int]
    ) -> None:
        policy = PartitionPolicy.fixed(partitions)
        queue = BatchQueue("q", BatchQueueConfig[int](partitions=policy))
        with pytest.raises(BatchQueueError, match="not started"):
            await queue.produce_many(nothing)
        async with queue:
            assert await queue.produce_many(nothing) == 0
        assert await queue.produce_many(nothing) == 0

    async def test_handlers_may_be_added_and_removed(self) -> None:
        handler = RecordingHandler[int]()
        queue = BatchQueue[int]("q")
        queue.add_handler(int, handler)
        queue.add_handler(str, RecordingHandler[str]())
        assert queue.remove_handler(str)
        assert not queue.is_running
        async with queue:
            await queue.produce(1)
        assert handler.handled == [1]

    async def test_produce_raises_also_for_a_registered_type(self) -> None:
        queue = BatchQueue[int]("q")
        queue.add_handler(int, RecordingHandler[int]())
        with pytest.raises(BatchQueueError, match="not started"):
            queue.produce_nowait(1)


@every_loop
async def test_start_twice_starts_once() -> None:
    queue = BatchQueue[int]("q")
    await queue.start()
    before = tasks_of(queue)
    await queue.start()
    await asyncio.gather(queue.start(), queue.start())
    assert tasks_of(queue) == before
    async with queue:
        assert tasks_of(queue) == before


@every_loop
async def test_handlers_are_refused_by_a_queue_with_a_consumer() -> None:
    config = BatchQueueConfig[int](consumer=lambda _: None)
    async with BatchQueue("q", config) as queue:
        with pytest.raises(BatchQueueError, match="consumer"):
            queue.add_handler(int, lambda _: None)
        with pytest.raises(BatchQueueError, match="consumer"):
            queue.remove_handler(int)


@every_loop
async def test_a_closed_queue_takes_no_handlers() -> None:
    async with BatchQueue[int]("q") as queue:
        pass
    with pytest.raises(BatchQueueError, match="shut down"):
        queue.add_handler(int, lambda _: None)


@every_loop
async def test_its_state_shows() -> None:
    queue = BatchQueue[int]("orders")
    assert queue.name == "orders"
    seen = [queue.is_running]
    async with queue:
        seen.append(queue.is_running)
        assert "orders" in repr(queue)
        await queue.shutdown()
        seen.append(queue.is_running)
    assert seen == [False, True, False]


@pytest.mark.real_time
class TestFromAnotherThread:
    async def test_every_call_is_refused(self) -> None:
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, RecordingHandler[int]())
            calls: list[Callable[[], object]] = [
                lambda: queue.produce_nowait(1),
                lambda: asyncio.run(queue.produce(1)),
                lambda: asyncio.run(queue.produce_many([1])),
                lambda: asyncio.run(queue.flush()),
                lambda: asyncio.run(queue.shutdown()),
                lambda: asyncio.run(queue.start()),
            ]
            for call in calls:
                outcome = await asyncio.to_thread(outcome_in_thread, call)
                assert isinstance(outcome, BatchQueueError)
                assert "SyncBatchQueue" in str(outcome)
            assert queue.is_running
            assert queue.stats().accepted == 0


@pytest.mark.real_time
async def test_from_another_loop_on_the_same_thread_is_refused() -> None:
    queue = BatchQueue[int]("q")
    other = asyncio.new_event_loop()
    try:
        outcome = await asyncio.to_thread(
            outcome_in_thread, lambda: other.run_until_complete(queue.start())
        )
        assert outcome is None
        with pytest.raises(BatchQueueError):
            await queue.produce(1)
        with pytest.raises(BatchQueueError):
            await queue.flush()
        with pytest.raises(BatchQueueError):
            await queue.shutdown()
        await asyncio.to_thread(
            outcome_in_thread, lambda: other.run_until_complete(queue.shutdown())
        )
        assert not queue.is_running
    finally:
        other.close()


def test_a_queue_may_be_built_outside_of_a_loop() -> None:
    handled: list[list[int]] = []
    queue = BatchQueue("q", BatchQueueConfig[int]())
    queue.add_handler(int, handled.append)

    async def main() -> None:
        async with queue:
            await queue.produce(1)

    asyncio.run(main())
    assert handled == [[1]]


def test_shutdown_again_on_another_loop_after_the_end() -> None:
    queue = BatchQueue[int]("q")

    async def first() -> None:
        async with queue:
            pass

    async def second() -> list[int]:
        return await queue.shutdown()

    asyncio.run(first())
    assert asyncio.run(second()) == []
