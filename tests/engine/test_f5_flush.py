"""F5: `flush` waits for what was accepted before it, and tells what failed of it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Retry,
    WhenFull,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.observing import live_timers
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts, check_settled

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


def fails(batch: list[int]) -> Exception | None:
    """Negative items fail their batch."""
    return ValueError(min(batch)) if min(batch) < 0 else None


@pytest.fixture(name="queue")
async def opened() -> AsyncIterator[BatchQueue[int]]:
    async with BatchQueue[int]("q") as queue:
        yield queue


class TestWhatItWaitsFor:
    async def test_nothing_where_nothing_came(self, queue: BatchQueue[int]) -> None:
        await queue.flush(timeout=0)

    async def test_all_that_was_accepted_before(self, queue: BatchQueue[int]) -> None:
        handler = RecordingHandler[int](delay=0.001)
        queue.add_handler(int, handler)
        await queue.produce_many(range(100))
        await queue.flush()
        assert handler.handled == list(range(100))

    async def test_what_is_in_flight(self, queue: BatchQueue[int]) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        queue.add_handler(int, handler)
        await queue.produce(1)
        await handler.entered()
        flushing = asyncio.create_task(queue.flush())
        await turns()
        assert not flushing.done()
        assert handler.gate is not None
        handler.gate.set()
        await flushing

    async def test_every_partition_and_drain_task(self) -> None:
        handler = RecordingHandler[int](delay=0.001)
        config = BatchQueueConfig[int](
            drain_tasks=DrainTaskPolicy.fixed(3),
            partitions=PartitionPolicy.fixed(5),
            selector=lambda item, partitions: item % partitions,
            consumer=handler,
            max_batch=2,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(50))
            await queue.flush()
            assert sorted(handler.handled) == list(range(50))

    async def test_a_producer_that_waits_has_nothing_accepted_yet(self) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            await queue.produce(2)
            producer = asyncio.create_task(queue.produce(3))
            await turns()
            flushing = asyncio.create_task(queue.flush())
            await turns()
            handler.gate = asyncio.Event()
            gate.set()
            await handler.entered()
            handler.gate.set()
            await flushing
            assert handler.handled[:2] == [1, 2]
            assert await producer

    @virtual
    async def test_not_for_what_comes_later(self, queue: BatchQueue[int]) -> None:
        """Under constant load it ends, with the batch that holds the last item."""
        handler = RecordingHandler[int](delay=1.0)
        queue.add_handler(int, handler)
        stop = asyncio.Event()

        async def load() -> None:
            item = 1000
            while not stop.is_set():
                await queue.produce(item)
                item += 1
                await asyncio.sleep(0.1)

        await queue.produce_many([1, 2, 3])
        loading = asyncio.create_task(load())
        await asyncio.sleep(10.5)
        accepted = queue.stats().accepted
        loop = asyncio.get_running_loop()
        began = loop.time()
        await queue.flush()
        stats = queue.stats()
        assert stats.handled >= accepted
        assert loop.time() - began <= 2.0
        assert stats.waiting + stats.in_flight > 0
        stop.set()
        await loading

    async def test_not_for_a_later_item_that_displaced_one(self) -> None:
        """Flush looks, then 3 and 4 displace 1 and 2, then the drain task takes."""
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        handler.on_flush = None  # type: ignore[method-assign, assignment]
        # Naps that do not end by themselves: the drain task would take first.
        config = BatchQueueConfig[int](
            buffer_size=2,
            when_full=WhenFull.DROP_OLDEST,
            idle=IdleBackoff(10.0, 100.0),
        )

        async def displace() -> None:
            assert await queue.produce_many([3, 4]) == 2

        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await turns()
            # Not `create_task`: an eager one would look before there is anything.
            flushing = asyncio.Task(queue.flush())
            displacing = asyncio.Task(displace())
            assert queue.produce_nowait(1)
            assert queue.produce_nowait(2)
            await displacing
            await handler.entered()
            await turns()
            is_done = flushing.done()
            gate.set()
            with pytest.raises(DeliveryError) as caught:
                await flushing
        assert handler.handled == [3, 4]
        assert [each.item for each in caught.value.failures] == [1, 2]
        assert is_done

    async def test_not_for_a_later_item_of_another_type(self) -> None:
        """Both types share a partition and a cycle; the second handler hangs."""
        quick, slow = RecordingHandler[int](), RecordingHandler[str]()
        slow.gate = asyncio.Event()
        slow.on_flush = None  # type: ignore[method-assign, assignment]
        async with BatchQueue[object]("q") as queue:
            queue.add_handler(int, quick)
            queue.add_handler(str, slow)
            await queue.flush()
            assert queue.produce_nowait(1)
            flushing = asyncio.create_task(queue.flush())
            await asyncio.sleep(0)
            assert queue.produce_nowait("later")
            await until(lambda: slow.batches)
            await turns()
            is_done = flushing.done()
            slow.gate.set()
            await flushing
            assert quick.handled == [1]
            assert is_done

    async def test_what_waits_for_its_retry(self) -> None:
        failures = [ValueError("first"), ValueError("second")]
        handler = RecordingHandler[int](
            fail_when=lambda _: failures.pop() if failures else None
        )
        retry = Retry(attempts=3, wait_initial=0.001)
        async with BatchQueue("q", BatchQueueConfig[int](retry=retry)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await queue.flush()
            assert handler.handled == [1]

    @virtual
    async def test_it_ends_linger_at_once(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](linger=1000.0, idle=IdleBackoff(10.0, 100.0))
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(500.0)
            await queue.produce(1)
            await turns()
            assert handler.items == []
            began = asyncio.get_running_loop().time()
            await queue.flush()
            assert handler.handled == [1]
            assert asyncio.get_running_loop().time() == began

    @virtual
    async def test_afterwards_linger_holds_again(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](linger=5.0)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await queue.flush()
            began = asyncio.get_running_loop().time()
            await queue.produce(2)
            await asyncio.sleep(20.0)
            assert handler.handled == [1, 2]
            assert handler.times[-1] - began == pytest.approx(5.0)


class TestWhatItTells:
    async def test_the_count_and_the_failures(self, queue: BatchQueue[int]) -> None:
        handler = RecordingHandler[int](fail_when=fails)
        queue.add_handler(int, handler)
        await queue.produce_many([-1, -2, -3])
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
        assert caught.value.count == 3
        assert caught.value.queue_name == "q"
        assert [each.item for each in caught.value.failures] == [-1, -2, -3]
        assert {each.outcome for each in caught.value.failures} == {"failed"}
        assert all(isinstance(each.error, ValueError) for each in caught.value.failures)

    async def test_the_first_hundred_of_many(self, queue: BatchQueue[int]) -> None:
        queue.add_handler(int, RecordingHandler[int](fail_when=fails))
        items = [-1 - i for i in range(250)]
        for start in range(0, 250, 50):
            await queue.produce_many(items[start : start + 50])
            await until(lambda: queue.stats().waiting + queue.stats().in_flight == 0)
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
        assert caught.value.count == 250
        assert [each.item for each in caught.value.failures] == items[:100]

    async def test_what_failed_since_the_last_flush_only(
        self, queue: BatchQueue[int]
    ) -> None:
        queue.add_handler(int, RecordingHandler[int](fail_when=fails))
        await queue.produce(-1)
        with pytest.raises(DeliveryError):
            await queue.flush()
        await queue.flush()
        await queue.produce(-2)
        await queue.produce(2)
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
        assert -1 not in [each.item for each in caught.value.failures]

    async def test_what_failed_before_it_was_called(
        self, queue: BatchQueue[int]
    ) -> None:
        queue.add_handler(int, RecordingHandler[int](fail_when=fails))
        await queue.produce(-1)
        await until(lambda: queue.stats().failed)
        with pytest.raises(DeliveryError):
            await queue.flush()

    async def test_unhandled_items(self, queue: BatchQueue[int]) -> None:
        await queue.produce(1)
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
        assert caught.value.failures[0].outcome == "unhandled"

    async def test_dropped_items(self) -> None:
        config = BatchQueueConfig[int](buffer_size=2, when_full=WhenFull.DROP_OLDEST)
        handler = RecordingHandler[int]()
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([1, 2, 3])
            with pytest.raises(DeliveryError) as caught:
                await queue.flush()
            assert [each.item for each in caught.value.failures] == [1]
            assert caught.value.failures[0].outcome == "dropped"
            assert handler.handled == [2, 3]

    async def test_what_was_handled_after_a_retry_is_no_failure(self) -> None:
        failures = [ValueError("once")]
        handler = RecordingHandler[int](
            fail_when=lambda _: failures.pop() if failures else None
        )
        retry = Retry(attempts=2, wait_initial=0.001)
        async with BatchQueue("q", BatchQueueConfig[int](retry=retry)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await queue.flush()

    async def test_rejected_items_are_no_failures(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](buffer_size=1, when_full=WhenFull.DROP_NEWEST)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            assert await queue.produce_many([1, 2, 3]) == 1
            await queue.flush()

    async def test_all_concurrent_callers_return_and_one_tells(
        self, queue: BatchQueue[int]
    ) -> None:
        queue.add_handler(int, RecordingHandler[int](delay=0.001, fail_when=fails))
        await queue.produce(-1)
        results = await asyncio.gather(
            *(queue.flush() for _ in range(5)), return_exceptions=True
        )
        assert any(isinstance(each, DeliveryError) for each in results)
        assert all(each is None or isinstance(each, DeliveryError) for each in results)


class TestTimeout:
    async def test_it_raises_and_leaves_the_items_alone(
        self, queue: BatchQueue[int]
    ) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        queue.add_handler(int, handler)
        await queue.produce(1)
        with pytest.raises(TimeoutError):
            await queue.flush(timeout=0.01)
        assert queue.stats().in_flight == 1
        gate.set()
        await queue.flush()
        assert handler.handled == [1]

    @virtual
    async def test_it_comes_on_time_and_leaves_no_timer(
        self, queue: BatchQueue[int]
    ) -> None:
        queue.add_handler(int, lambda _: asyncio.sleep(1000.0))
        await queue.produce(1)
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await queue.flush(timeout=7.0)
        assert asyncio.get_running_loop().time() - began == pytest.approx(7.0)
        left = [each for each in live_timers() if "asyncio.timeouts" in repr(each)]
        assert left == []

    async def test_failures_are_kept_for_the_next_flush(
        self, queue: BatchQueue[int]
    ) -> None:
        gate = asyncio.Event()
        queue.add_handler(int, RecordingHandler[int](gate=gate, fail_when=fails))
        await queue.produce(-1)
        with pytest.raises(TimeoutError):
            await queue.flush(timeout=0.01)
        gate.set()
        with pytest.raises(DeliveryError):
            await queue.flush()


class TestCallers:
    async def test_from_a_handler_its_own_batch_is_left_out(
        self, queue: BatchQueue[int]
    ) -> None:
        flushed: list[list[int]] = []

        async def consume(batch: list[int]) -> None:
            await queue.flush(timeout=5.0)
            flushed.append(batch)

        queue.add_handler(int, consume)
        await queue.produce_many([1, 2])
        await queue.flush()
        assert flushed == [[1, 2]]

    async def test_from_a_handler_other_drain_tasks_are_waited_for(self) -> None:
        other = RecordingHandler[str](delay=0.01)
        seen: list[list[str]] = []

        async def consume(batch: list[int]) -> None:
            await queue.flush()
            seen.append(list(other.handled))

        config = BatchQueueConfig[object](
            drain_tasks=DrainTaskPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, consume)
            queue.add_handler(str, other)
            await queue.produce_many(["a", 1])
        assert seen == [["a"]]

    async def test_two_handlers_that_flush_do_not_wait_for_each_other(self) -> None:
        """Each one's batch is covered by the other one's flush."""
        config = BatchQueueConfig[object](
            drain_tasks=DrainTaskPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
        )
        both = asyncio.Barrier(2)
        results: list[str] = []

        async def consume(_: list[Any]) -> None:
            await both.wait()
            try:
                await queue.flush(timeout=0.5)
            except TimeoutError:
                results.append("timeout")
            else:
                results.append("flushed")

        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, consume)
            queue.add_handler(str, consume)
            await queue.produce_many([1, "a"])
        assert results == ["flushed", "flushed"]

    async def test_from_on_error_and_on_idle(self) -> None:
        calls: list[str] = []

        async def on_error(batch: list[int], error: BaseException) -> None:
            await queue.flush(timeout=5.0)
            calls.append("on_error")

        class Idle(RecordingHandler[int]):
            async def on_idle(self) -> None:
                if "on_idle" not in calls and "on_error" in calls:
                    with pytest.raises(DeliveryError):
                        await queue.flush(timeout=5.0)
                    calls.append("on_idle")

        async with BatchQueue("q", BatchQueueConfig[int](on_error=on_error)) as queue:
            queue.add_handler(int, Idle(fail_when=fails))
            await queue.produce(-1)
            await until(lambda: "on_idle" in calls)
        assert calls == ["on_error", "on_idle"]

    async def test_while_shutdown_drains(self) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            before = asyncio.create_task(queue.flush())
            await turns()
            closing = asyncio.create_task(queue.shutdown())
            await turns()
            after = asyncio.create_task(queue.flush())
            await turns()
            gate.set()
            await asyncio.gather(before, after, closing)

    async def test_the_shutdown_deadline_ends_it_with_the_returned_items(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            await queue.produce(2)
            flushing = asyncio.create_task(queue.flush())
            await turns()
            assert await queue.shutdown(timeout=0.01) == [1, 2]
            with pytest.raises(DeliveryError) as caught:
                await flushing
        assert {each.outcome for each in caught.value.failures} == {"returned"}
        assert caught.value.count == 2

    async def test_after_shutdown_there_is_nothing_to_wait_for(self) -> None:
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, RecordingHandler[int]())
            await queue.produce(1)
        await queue.flush()

    async def test_before_start_there_is_nothing_to_wait_for(self) -> None:
        queue = BatchQueue[int]("q")
        async with asyncio.timeout(30.0):
            with contextlib.suppress(BatchQueueError):
                await queue.flush()

    async def test_a_cancelled_one_leaves_nothing_behind(
        self, queue: BatchQueue[int]
    ) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        queue.add_handler(int, handler)
        await queue.produce(1)
        await handler.entered()
        flushing = asyncio.create_task(queue.flush())
        await turns()
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        assert not any(each.accounts.is_watched for each in queue._parts.partitions)
        gate.set()
        await queue.flush()
        check_settled(queue)

    @virtual
    async def test_a_cancelled_one_does_not_end_linger_for_good(self) -> None:
        handler = RecordingHandler[int]()
        gate = asyncio.Event()
        handler.gate = gate
        config = BatchQueueConfig[int](linger=5.0)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            flushing = asyncio.create_task(queue.flush())
            await handler.entered()
            flushing.cancel()
            await asyncio.wait({flushing})
            gate.set()
            began = asyncio.get_running_loop().time()
            await queue.produce(2)
            await asyncio.sleep(20.0)
            assert handler.handled == [1, 2]
            assert handler.times[-1] - began == pytest.approx(5.0)

    async def test_of_many_at_once_each_waits_for_its_own(
        self, queue: BatchQueue[int]
    ) -> None:
        handler = RecordingHandler[int](delay=0.001)
        queue.add_handler(int, handler)

        async def produce_and_flush(item: int) -> None:
            await queue.produce(item)
            await queue.flush()
            assert item in handler.handled
            check_accounts(queue)

        await asyncio.gather(*(produce_and_flush(item) for item in range(30)))


@virtual
async def test_a_flush_that_was_struck_as_it_was_told_is_told_again(
    queue: BatchQueue[int],
) -> None:
    """As by a signal handler that raises: between two calls of the one who told it."""
    struck = False

    def strike(frame: FrameType, event: str, function: object) -> None:
        nonlocal struck
        is_there = frame.f_code.co_qualname == "_Settling.reached"
        if event == "c_return" and is_there and not struck:
            struck = True
            raise TimeoutError

    queue.add_handler(int, RecordingHandler())
    await queue.produce(1)
    sys.setprofile(strike)
    try:
        await queue.flush(10.0)
    finally:
        sys.setprofile(None)
    assert struck
