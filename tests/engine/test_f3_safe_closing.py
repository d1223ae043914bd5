"""F3: shutdown is idempotent, and safe from everywhere; nothing survives it."""

import asyncio
import gc
import weakref

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueError, IdleBackoff
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.observing import cancel_drain_tasks, live_timers, tasks_of
from tests.engine.until import turns, until
from tests.support.leaks import surviving_tasks
from tests.support.oracle import check_settled

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


@pytest.fixture(name="queue")
def made() -> BatchQueue[int]:
    return BatchQueue("q", BatchQueueConfig[int]())


async def test_twice_one_after_the_other(queue: BatchQueue[int]) -> None:
    await queue.start()
    assert await queue.shutdown() == []
    assert await queue.shutdown() == []


async def test_leftovers_are_given_out_once(queue: BatchQueue[int]) -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce_many([1, 2, 3])
    assert await queue.shutdown(timeout=0.01) == [1, 2, 3]
    assert await queue.shutdown() == []


async def test_of_concurrent_calls_one_gets_the_list(queue: BatchQueue[int]) -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce_many([1, 2, 3])
    calls = [queue.shutdown(timeout=0.01) for _ in range(4)]
    lists = await asyncio.gather(*calls)
    assert sorted(lists) == [[], [], [], [1, 2, 3]]
    check_settled(queue)


async def test_every_concurrent_call_returns_after_the_end(
    queue: BatchQueue[int],
) -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce(1)
    await handler.entered()
    first = asyncio.create_task(queue.shutdown())
    await turns()
    second = asyncio.create_task(queue.shutdown())
    await turns()
    assert not first.done()
    assert not second.done()
    gate.set()
    await asyncio.gather(first, second)
    assert handler.handled == [1]


@virtual
async def test_the_earliest_of_several_deadlines_counts(
    queue: BatchQueue[int],
) -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce(1)
    await handler.entered()
    loop = asyncio.get_running_loop()
    began = loop.time()
    patient = asyncio.create_task(queue.shutdown(timeout=100.0))
    await turns()
    await queue.shutdown(timeout=1.0)
    await patient
    assert loop.time() - began == pytest.approx(1.0, abs=0.2)


@virtual
async def test_no_task_and_no_timer_survives() -> None:
    config = BatchQueueConfig[int](linger=5.0, idle=IdleBackoff(1.0, 60.0))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, RecordingHandler[int]())
        await queue.produce(1)
        await turns()
    assert tasks_of(queue) == []
    assert live_timers() == []


@virtual
async def test_no_timer_survives_a_second_call(queue: BatchQueue[int]) -> None:
    async with queue:
        await queue.shutdown(timeout=10.0)
        await queue.shutdown(timeout=20.0)
    assert live_timers() == []


@virtual
async def test_no_timer_survives_concurrent_calls(queue: BatchQueue[int]) -> None:
    await queue.start()
    await asyncio.gather(*(queue.shutdown(timeout=10.0 + i) for i in range(3)))
    assert live_timers() == []


async def test_before_start_it_closes_for_good(queue: BatchQueue[int]) -> None:
    assert await queue.shutdown() == []
    assert not queue.is_running
    with pytest.raises(BatchQueueError):
        await queue.start()
    assert not await queue.produce(1)


async def test_a_closed_queue_cannot_be_started_again(queue: BatchQueue[int]) -> None:
    async with queue:
        pass
    with pytest.raises(BatchQueueError, match="shut down"):
        await queue.start()


async def test_a_closed_queue_is_collected() -> None:
    queue: BatchQueue[int] | None = BatchQueue[int]("q")
    assert queue is not None
    async with queue:
        queue.add_handler(int, RecordingHandler[int]())
        await queue.produce(1)
    gone = weakref.ref(queue)
    queue = None
    await turns()
    gc.collect()
    assert gone() is None


class TestFromWithin:
    """The original deadlocked here (its defect D8)."""

    async def test_from_a_handler(self, queue: BatchQueue[int]) -> None:
        answers: list[list[int]] = []

        async def consume(batch: list[int]) -> None:
            answers.append(await queue.shutdown())

        await queue.start()
        queue.add_handler(int, consume)
        await queue.produce_many([1, 2])
        await until(lambda: answers)
        assert answers == [[]]
        assert not queue.is_running
        assert await queue.shutdown() == []
        assert check_settled(queue).handled == 2

    async def test_items_behind_the_closing_batch_are_handled(
        self,
    ) -> None:
        handled: list[int] = []
        queue = BatchQueue("q", BatchQueueConfig[int](max_batch=1))

        async def consume(batch: list[int]) -> None:
            await queue.shutdown()
            handled.extend(batch)

        await queue.start()
        queue.add_handler(int, consume)
        await queue.produce_many([1, 2, 3])
        await until(lambda: len(handled) == 3)
        assert await queue.shutdown() == []

    async def test_from_a_task_that_a_handler_awaits(
        self, queue: BatchQueue[int]
    ) -> None:
        async def consume(batch: list[int]) -> None:
            await asyncio.create_task(queue.shutdown())

        await queue.start()
        queue.add_handler(int, consume)
        await queue.produce(1)
        await until(lambda: not queue.is_running)
        assert await queue.shutdown() == []
        assert check_settled(queue).handled == 1

    async def test_from_a_task_that_outlives_its_handler(
        self, queue: BatchQueue[int]
    ) -> None:
        """Nothing waits for that one: it is served like any other caller."""
        late = asyncio.Event()
        tasks: list[asyncio.Task[list[int]]] = []

        async def close_later() -> list[int]:
            await late.wait()
            left = await queue.shutdown()
            assert tasks_of(queue) == []
            return left

        async def consume(batch: list[int]) -> None:
            tasks.append(asyncio.create_task(close_later()))

        await queue.start()
        queue.add_handler(int, consume)
        await queue.produce(1)
        await until(lambda: tasks)
        await turns()
        late.set()
        assert await tasks[0] == []

    async def test_from_on_error(self) -> None:
        answers: list[list[int]] = []

        async def on_error(batch: list[int], error: BaseException) -> None:
            answers.append(await queue.shutdown())

        config = BatchQueueConfig[int](on_error=on_error)
        queue = BatchQueue("q", config)
        handler = RecordingHandler[int](fail_when=lambda _: ValueError())
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce(1)
        await until(lambda: answers)
        assert answers == [[]]
        assert await queue.shutdown() == []
        assert check_settled(queue).failed == 1

    async def test_from_on_idle(self, queue: BatchQueue[int]) -> None:
        answers: list[list[int]] = []

        class Idle(RecordingHandler[int]):
            async def on_idle(self) -> None:
                answers.append(await queue.shutdown())

        await queue.start()
        queue.add_handler(int, Idle())
        await until(lambda: answers)
        assert answers == [[]]
        assert await queue.shutdown() == []

    async def test_from_on_close(self, queue: BatchQueue[int]) -> None:
        answers: list[list[int]] = []

        class Closing(RecordingHandler[int]):
            async def on_close(self) -> None:
                answers.append(await queue.shutdown())

        await queue.start()
        queue.add_handler(int, Closing())
        assert await queue.shutdown() == []
        assert answers == [[]]

    async def test_from_on_flush(self, queue: BatchQueue[int]) -> None:
        answers: list[list[int]] = []

        class Flushing(RecordingHandler[int]):
            async def on_flush(self) -> None:
                answers.append(await queue.shutdown())

        await queue.start()
        queue.add_handler(int, Flushing())
        await queue.flush()
        assert answers == [[]]
        assert await queue.shutdown() == []

    async def test_from_a_handler_of_another_queue(
        self, queue: BatchQueue[int]
    ) -> None:
        """Only a handler of the queue itself must not be waited for."""
        inner = RecordingHandler[int](delay=0.01)
        answers: list[list[int]] = []

        async def consume(batch: list[str]) -> None:
            answers.append(await queue.shutdown())
            assert inner.handled == [1]

        await queue.start()
        queue.add_handler(int, inner)
        async with BatchQueue[str]("outer") as outer:
            outer.add_handler(str, consume)
            await queue.produce(1)
            await outer.produce("close the other one")
        assert answers == [[]]
        assert check_settled(outer).handled == 1


class TestCancelled:
    async def test_goes_on_in_the_background(self, queue: BatchQueue[int]) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce_many([1, 2])
        await handler.entered()
        closing = asyncio.create_task(queue.shutdown())
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        gate.set()
        await until(lambda: not surviving_tasks())
        assert check_settled(queue).handled == 2
        assert handler.close_calls == 1

    async def test_leftovers_wait_for_the_next_caller(
        self, queue: BatchQueue[int]
    ) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce_many([1, 2])
        closing = asyncio.create_task(queue.shutdown(timeout=0.2))
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await queue.shutdown() == [1, 2]

    async def test_a_stranger_cancels_the_closing_task(
        self, queue: BatchQueue[int]
    ) -> None:
        """Who cancels all tasks hits the queue's, too; a later call still ends it."""
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce_many([1, 2])
        await handler.entered()
        before = asyncio.all_tasks()
        closing = asyncio.create_task(queue.shutdown())
        await turns()
        for task in asyncio.all_tasks() - before - {closing}:
            task.cancel()
        await asyncio.wait({closing})
        gate.set()
        async with asyncio.timeout(30.0):
            left = await queue.shutdown(timeout=1.0)
        stats = check_settled(queue)
        assert stats.handled + len(left) == 2


async def test_after_a_drain_task_was_cancelled(queue: BatchQueue[int]) -> None:
    handler = RecordingHandler[int]()
    await queue.start()
    queue.add_handler(int, handler)
    await queue.flush()
    await cancel_drain_tasks(queue)
    await queue.produce_many([1, 2, 3])
    assert await queue.shutdown() == []
    assert handler.handled == [1, 2, 3]
    assert handler.close_calls == 1


async def test_while_the_cancellation_of_a_drain_task_is_under_way(
    queue: BatchQueue[int],
) -> None:
    """As when a runner cancels all tasks, and one of them leaves `async with`."""
    handler = RecordingHandler[int]()
    await queue.start()
    queue.add_handler(int, handler)
    await queue.flush()
    await queue.produce_many([1, 2, 3])
    for task in tasks_of(queue):
        task.cancel()
    assert await queue.shutdown() == []
    assert handler.handled == [1, 2, 3]


async def test_after_the_drain_task_was_cancelled_in_a_handler() -> None:
    """The batch in its hands is tried again or has failed: it is not just gone."""
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    failed: list[int] = []
    config = BatchQueueConfig[int](on_error=lambda batch, _: failed.extend(batch))
    queue = BatchQueue("q", config)
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce_many([1, 2])
    await handler.entered()
    await queue.produce_many([3, 4])
    await cancel_drain_tasks(queue)
    gate.set()
    assert await queue.shutdown() == []
    assert failed + handler.handled == [1, 2, 3, 4]
    stats = check_settled(queue)
    assert (stats.failed, stats.handled) == (len(failed), len(handler.handled))
