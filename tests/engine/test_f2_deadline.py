"""F2: what the shutdown deadline cuts off is returned, and counted as that."""

import asyncio
import contextlib
import gc
import weakref

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    WhenFull,
)
from batchqueue_async._policies.errors import KEPT_FAILURES
from tests.engine.every_loop import every_loop
from tests.engine.observing import live_timers, tasks_of
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])
SOON = 0.02


class Stubborn(RecordingHandler[int]):
    """Swallows its cancellations until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()
        self.cancellations = 0

    async def consume(self, batch: list[int]) -> None:
        with self._inside("consume"):
            self.batches.append(list(batch))
            self._entered.set()
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.cancellations += 1
            self.handled += batch


async def stalled(
    handler: RecordingHandler[int], config: BatchQueueConfig[int] | None = None
) -> BatchQueue[int]:
    """A queue with 1 and 2 in flight and 3 and 4 waiting."""
    queue = BatchQueue("q", config)
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce_many([1, 2])
    await handler.entered()
    await queue.produce_many([3, 4])
    return queue


async def test_in_flight_first_then_what_waited() -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    queue = await stalled(handler)
    assert await queue.shutdown(timeout=SOON) == [1, 2, 3, 4]
    stats = check_settled(queue)
    assert stats.returned == 4
    assert handler.running == 0


@virtual
async def test_at_the_deadline_and_not_later() -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    queue = await stalled(handler)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await queue.shutdown(timeout=5.0)
    assert loop.time() - began == 5.0
    assert live_timers() == []


@virtual
async def test_no_deadline_waits_as_long_as_it_takes() -> None:
    handler = RecordingHandler[int](delay=1_000_000.0)
    queue = await stalled(handler)
    assert await queue.shutdown(timeout=None) == []
    assert handler.handled == [1, 2, 3, 4]


async def test_zero_returns_what_is_in_flight_and_what_waits() -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    queue = await stalled(handler)
    assert await queue.shutdown(timeout=0) == [1, 2, 3, 4]
    assert check_settled(queue).returned == 4
    assert tasks_of(queue) == []


async def test_zero_on_an_idle_queue_returns_nothing() -> None:
    queue = BatchQueue[int]("q")
    await queue.start()
    assert await queue.shutdown(timeout=0) == []


async def test_handled_batches_are_not_returned() -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    gates[0].set()
    taken: list[int] = []

    async def consume(batch: list[int]) -> None:
        taken.extend(batch)
        await gates[len(taken) - 1].wait()

    queue = BatchQueue("q", BatchQueueConfig[int](max_batch=1))
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce_many([1, 2, 3])
    assert await queue.shutdown(timeout=SOON) == [2, 3]
    stats = check_settled(queue)
    assert (stats.handled, stats.returned) == (1, 2)


async def test_taken_batches_that_wait_for_their_turn_are_returned_in_order() -> None:
    """One cycle took items of two types; the first handler never came back."""
    handler = RecordingHandler[int](gate=asyncio.Event())
    other = RecordingHandler[str]()
    queue = BatchQueue[object]("q")
    await queue.start()
    queue.add_handler(int, handler)
    queue.add_handler(str, other)
    await queue.produce_many([1, "a", 2, "b"])
    assert await queue.shutdown(timeout=SOON) == [1, 2, "a", "b"]
    assert other.items == []
    check_settled(queue)


async def test_a_batch_parked_for_its_retry_is_returned() -> None:
    handler = RecordingHandler[int](fail_when=lambda _: ValueError("not now"))
    retry = Retry(attempts=5, wait_initial=1000.0, wait_max=1000.0)
    queue = BatchQueue("q", BatchQueueConfig[int](retry=retry))
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce(1)
    await handler.entered()
    await queue.produce(2)
    assert await queue.shutdown(timeout=SOON) == [1, 2]
    stats = check_settled(queue)
    assert (stats.returned, stats.failed) == (2, 0)


async def test_a_handler_that_changed_its_list_does_not_change_the_leftovers() -> None:
    async def consume(batch: list[int]) -> None:
        batch.clear()
        await asyncio.Event().wait()

    queue = BatchQueue[int]("q")
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce_many([1, 2])
    assert await queue.shutdown(timeout=SOON) == [1, 2]
    assert check_settled(queue).returned == 2


@pytest.mark.parametrize("drain_tasks", [1, 3])
async def test_every_partition_returns_its_items(drain_tasks: int) -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, partitions: item % partitions,
        consumer=handler,
        max_batch=2,
    )
    queue = BatchQueue("q", config)
    await queue.start()
    await queue.produce_many(range(30))
    await handler.entered()
    left = await queue.shutdown(timeout=SOON)
    assert sorted(left) == list(range(30))
    for index in range(3):
        mine = [item for item in left if item % 3 == index]
        assert mine == sorted(mine)
    check_settled(queue)


async def test_displacing_queues_return_their_items_too() -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    config = BatchQueueConfig[int](buffer_size=2, when_full=WhenFull.DROP_OLDEST)
    queue = await stalled(handler, config)
    await queue.produce(5)
    assert await queue.shutdown(timeout=SOON) == [1, 2, 4, 5]
    stats = check_settled(queue)
    assert (stats.returned, stats.dropped) == (4, 1)


async def test_a_handler_that_cleans_up_quickly_ends_before_the_return() -> None:
    cleaned: list[str] = []

    async def consume(batch: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append("done")

    queue = BatchQueue[int]("q")
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce(1)
    assert await queue.shutdown(timeout=SOON) == [1]
    assert cleaned == ["done"]


async def test_a_cancelled_handler_that_finishes_its_batch_has_handled_it() -> None:
    async def consume(batch: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    queue = BatchQueue("q", BatchQueueConfig[int](max_batch=1))
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce_many([1, 2])
    left = await queue.shutdown(timeout=SOON)
    stats = check_settled(queue)
    assert left == [1, 2][stats.handled :]
    assert stats.handled <= 1, "nothing is begun after the deadline"
    assert tasks_of(queue) == []


async def test_a_cancelled_handler_that_raises_has_failed() -> None:
    errors: list[BaseException] = []

    async def consume(batch: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            message = "cleaning up failed"
            raise ValueError(message)

    config = BatchQueueConfig[int](on_error=lambda _, error: errors.append(error))
    queue = BatchQueue("q", config)
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce(1)
    left = await queue.shutdown(timeout=SOON)
    stats = check_settled(queue)
    assert stats.failed + stats.returned == 1
    assert len(left) == stats.returned
    assert len(errors) == stats.failed
    assert tasks_of(queue) == []


@pytest.mark.parametrize("handler_timeout", [None, 1000.0])
async def test_cleaning_up_badly_leaves_no_unseen_exception(
    handler_timeout: float | None,
) -> None:
    """With a `handler_timeout` the handler runs in a task of its own."""

    async def consume(batch: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            message = "cleaning up failed"
            raise ValueError(message)

    config = BatchQueueConfig[int](
        handler_timeout=handler_timeout, on_error=lambda _batch, _error: None
    )
    queue = BatchQueue("q", config)
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce(1)
    await queue.shutdown(timeout=SOON)
    check_settled(queue)


class TestAHandlerThatCannotBeStopped:
    async def test_its_batch_is_returned_and_it_is_the_only_survivor(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = Stubborn()
        queue = await stalled(handler)
        before = asyncio.all_tasks()
        left = await queue.shutdown(timeout=SOON)
        assert left == [1, 2, 3, 4]
        assert check_settled(queue).returned == 4
        survivors = asyncio.all_tasks() - {asyncio.current_task()}
        assert survivors <= before
        assert len(survivors) == 1
        assert "does not stop" in caplog.text
        handler.let_go.set()
        await until(lambda: not tasks_of(queue))

    async def test_what_it_does_later_is_not_counted(self) -> None:
        handler = Stubborn()
        queue = await stalled(handler)
        await queue.shutdown(timeout=SOON)
        before = queue.stats()
        handler.let_go.set()
        await until(lambda: not tasks_of(queue))
        assert handler.handled == [1, 2]
        assert queue.stats().partitions == before.partitions
        assert handler.batches == [[1, 2]], "no further batch"

    async def test_its_late_failure_is_not_reported_as_a_failure(self) -> None:
        errors: list[BaseException] = []
        let_go = asyncio.Event()
        entered = asyncio.Event()

        async def consume(batch: list[int]) -> None:
            entered.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            message = "late"
            raise ValueError(message)

        config = BatchQueueConfig[int](on_error=lambda _, error: errors.append(error))
        queue = BatchQueue("q", config)
        await queue.start()
        queue.add_handler(int, consume)
        await queue.produce(1)
        await entered.wait()
        assert await queue.shutdown(timeout=SOON) == [1]
        let_go.set()
        await until(lambda: not tasks_of(queue))
        stats = check_settled(queue)
        assert (stats.returned, stats.failed) == (1, 0)
        assert errors == []

    @virtual
    async def test_it_holds_shutdown_up_for_a_short_grace_only(self) -> None:
        handler = Stubborn()
        queue = await stalled(handler)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await queue.shutdown(timeout=5.0)
        assert loop.time() - began < 6.0
        handler.let_go.set()
        await until(lambda: not tasks_of(queue))

    async def test_no_hook_is_called_after_the_end(self) -> None:
        """It lets go after its removal and the shutdown: too late for `on_close`."""
        handler = Stubborn()
        queue = await stalled(handler)
        queue.remove_handler(int)
        await queue.shutdown(timeout=SOON)
        calls = list(handler.calls)
        handler.let_go.set()
        await until(lambda: not tasks_of(queue))
        assert handler.calls == calls

    async def test_on_flush_that_swallows_its_cancellation(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The drain task goes on behind it, where other flushes waited."""

        class Slow(RecordingHandler[int]):
            async def on_flush(self) -> None:
                await super().on_flush()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    return

        slow, other = Slow(), RecordingHandler[str]()
        queue = BatchQueue[object]("q")
        await queue.start()
        queue.add_handler(int, slow)
        queue.add_handler(str, other)
        flushing = asyncio.create_task(queue.flush())
        await until(lambda: slow.flush_calls)
        assert await queue.shutdown(timeout=SOON) == []
        await asyncio.wait({flushing})
        assert tasks_of(queue) == []
        assert "ended with an error" not in caplog.text
        flushing.exception()

    async def test_a_flush_does_not_outlive_the_queue_for_a_stubborn_on_flush(
        self,
    ) -> None:
        let_go = asyncio.Event()

        class Stuck(RecordingHandler[int]):
            async def on_flush(self) -> None:
                await super().on_flush()
                while not let_go.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await let_go.wait()

        stuck = Stuck()
        queue = BatchQueue[object]("q")
        await queue.start()
        queue.add_handler(int, stuck)
        flushing = asyncio.create_task(queue.flush())
        await until(lambda: stuck.flush_calls)
        assert await queue.shutdown(timeout=SOON) == []
        with pytest.raises(DeliveryError) as caught:
            await flushing
        assert isinstance(caught.value.failures[0].error, TimeoutError)
        let_go.set()
        await until(lambda: tasks_of(queue) == [])


class TestOnClose:
    @virtual
    async def test_it_is_cancelled_at_the_deadline(self) -> None:
        class Slow(RecordingHandler[int]):
            async def on_close(self) -> None:
                await super().on_close()
                await asyncio.Event().wait()

        slow, other = Slow(), RecordingHandler[str]()
        queue = BatchQueue[object]("q")
        await queue.start()
        queue.add_handler(int, slow)
        queue.add_handler(str, other)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await queue.shutdown(timeout=5.0) == []
        assert loop.time() - began == pytest.approx(5.0, abs=0.2)
        assert (slow.close_calls, other.close_calls) == (1, 0)

    async def test_it_is_not_called_once_the_deadline_has_come(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        queue = await stalled(handler)
        await queue.shutdown(timeout=SOON)
        assert handler.close_calls == 0

    async def test_one_that_swallows_its_cancellation_is_left_behind(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        let_go = asyncio.Event()

        class Stuck(RecordingHandler[int]):
            async def on_close(self) -> None:
                while not let_go.is_set():
                    try:
                        await let_go.wait()
                    except asyncio.CancelledError:
                        continue

        queue = BatchQueue[int]("q")
        await queue.start()
        queue.add_handler(int, Stuck())
        assert await queue.shutdown(timeout=SOON) == []
        assert "on_close" in caplog.text
        let_go.set()
        await turns()


async def test_on_error_that_hangs_is_cut_off_at_the_deadline() -> None:
    async def on_error(batch: list[int], error: BaseException) -> None:
        await asyncio.Event().wait()

    handler = RecordingHandler[int](fail_when=lambda _: ValueError())
    queue = BatchQueue("q", BatchQueueConfig[int](on_error=on_error))
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce(1)
    await handler.entered()
    await queue.produce(2)
    left = await queue.shutdown(timeout=SOON)
    stats = check_settled(queue)
    assert left == [1, 2][stats.failed :]
    assert stats.returned == len(left)


class Thing:
    """What can be seen to be freed."""


@pytest.mark.parametrize("timeout", [None, 60.0])
async def test_a_batch_that_was_cut_off_is_free(timeout: float | None) -> None:
    """But for what `flush` may still be asked of."""

    async def hangs(batch: list[Thing]) -> None:
        await asyncio.Event().wait()

    config = BatchQueueConfig[Thing](consumer=hangs, handler_timeout=timeout)
    queue = BatchQueue("q", config)
    await queue.start()
    things = [Thing() for _ in range(1000)]
    known = [weakref.ref(each) for each in things]
    await queue.produce_many(things)
    await until(lambda: queue.stats().in_flight == 1000)
    del things
    assert len(await queue.shutdown(timeout=SOON)) == 1000
    gc.collect()
    assert sum(each() is not None for each in known) <= KEPT_FAILURES
