"""A2: an item that nobody handles is counted, and somebody is told."""

import asyncio
import logging

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    PartitionPolicy,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("batchqueue_async")
        and record.levelno >= logging.ERROR
    ]


class Other:
    pass


class TestUnhandled:
    async def test_it_is_counted_and_logged_once_per_type(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with BatchQueue[object]("q") as queue:
            for _ in range(5):
                await queue.produce_many([1, 2, Other(), Other()])
                await asyncio.sleep(0.005)
        assert check_settled(queue).unhandled == 20
        messages = errors(caplog)
        assert len(messages) == 2
        assert "int" in messages[0]
        assert "Other" in messages[1]

    async def test_it_does_not_go_to_on_error(self) -> None:
        calls: list[object] = []
        config = BatchQueueConfig[int](on_error=lambda batch, _: calls.append(batch))
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        assert check_settled(queue).unhandled == 1
        assert calls == []

    async def test_other_types_in_the_batch_are_handled(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[object](partitions=PartitionPolicy.fixed(1))
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([Other(), 1, Other(), 2])
        assert handler.handled == [1, 2]
        assert check_settled(queue).unhandled == 2

    async def test_after_a_handler_came_and_went_it_is_news_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with BatchQueue[int]("q") as queue:
            await queue.produce(1)
            await until(lambda: queue.stats().unhandled == 1)
            queue.add_handler(int, RecordingHandler[int]())
            queue.remove_handler(int)
            await queue.produce(2)
            await until(lambda: queue.stats().unhandled == 2)
        assert len(errors(caplog)) == 2

    async def test_that_its_class_was_made_again_is_told(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As where a notebook's cell is run again, or a module is reloaded."""

        def cell() -> tuple[type, type]:
            class Event:
                pass

            class Click(Event):
                pass

            return Event, Click

        event, click = cell()
        async with BatchQueue[object]("q") as queue:
            queue.add_handler(event, RecordingHandler[object]())
            await queue.produce(click())
            _, click = cell()
            await queue.produce_many([click(), Other()])
        assert check_settled(queue).unhandled == 2
        again, other = errors(caplog)
        assert f"there is one for another class named {event.__qualname__}" in again
        assert other == (
            "q: no handler for items of type Other; they count as unhandled"
        )

    async def test_each_queue_logs_for_itself(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in ("first", "second"):
            async with BatchQueue[int](name) as queue:
                await queue.produce(1)
        assert ["first" in errors(caplog)[0], "second" in errors(caplog)[1]] == [
            True
        ] * 2


class TestFailed:
    async def test_it_goes_to_on_error_with_its_exception(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls: list[tuple[list[int], BaseException]] = []
        error = ValueError("bad")
        handler = RecordingHandler[int](
            fail_when=lambda batch: error if 3 in batch else None
        )
        config = BatchQueueConfig[int](
            max_batch=2, on_error=lambda *call: calls.append(call)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([1, 2, 3, 4, 5])
        assert calls == [([3, 4], error)]
        assert check_settled(queue).failed == 2
        assert errors(caplog) == []

    async def test_without_on_error_it_is_logged_with_its_traceback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = RecordingHandler[int](fail_when=lambda _: ValueError("bad"))
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
        assert len(errors(caplog)) == 1
        assert "ValueError: bad" in caplog.text


class TestLeftovers:
    async def test_leaving_async_with_logs_them_and_passes_them_on(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls: list[list[int]] = []
        handler = RecordingHandler[int](gate=asyncio.Event())
        config = BatchQueueConfig[int](on_error=lambda batch, _: calls.append(batch))
        queue = BatchQueue("q", config)
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce_many([1, 2])
        await handler.entered()
        await queue.produce(3)
        # As `__aexit__`, only that its deadline is 30 s away.
        await queue.close(timeout=0.01)
        assert calls == [[1, 2, 3]]
        assert "3 items" in errors(caplog)[-1]
        assert check_settled(queue).returned == 3

    @pytest.mark.asyncio(loop_factories=["virtual"])
    async def test_so_after_the_whole_deadline(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls: list[list[int]] = []
        config = BatchQueueConfig[int](on_error=lambda batch, _: calls.append(batch))
        loop = asyncio.get_running_loop()
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, lambda _: asyncio.sleep(1e6))
            await queue.produce(1)
            began = loop.time()
        assert loop.time() - began == pytest.approx(30.0, abs=0.5)
        assert calls == [[1]]
        assert errors(caplog)

    async def test_on_error_that_raises_is_logged_and_harms_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def on_error(batch: list[int], error: BaseException) -> None:
            message = "no dead letters"
            raise OSError(message)

        handler = RecordingHandler[int](gate=asyncio.Event())
        queue = BatchQueue("q", BatchQueueConfig[int](on_error=on_error))
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce(1)
        await queue.close(timeout=0.01)
        assert "no dead letters" in caplog.text

    async def test_on_error_that_hangs_does_not_hold_the_end_up_for_ever(self) -> None:
        async def on_error(batch: list[int], error: BaseException) -> None:
            await asyncio.Event().wait()

        handler = RecordingHandler[int](gate=asyncio.Event())
        queue = BatchQueue("q", BatchQueueConfig[int](on_error=on_error))
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce(1)
        closing = asyncio.create_task(queue.close(timeout=0.01))
        await asyncio.wait({closing}, timeout=2.0)
        is_done = closing.done()
        closing.cancel()
        await asyncio.wait({closing})
        assert is_done

    async def test_who_leaves_can_be_cancelled_while_on_error_runs(self) -> None:
        """That is the caller's own cancellation, and no failure of `on_error`."""
        in_on_error = asyncio.Event()

        async def on_error(batch: list[int], error: BaseException) -> None:
            in_on_error.set()
            await asyncio.sleep(0.05)

        handler = RecordingHandler[int](gate=asyncio.Event())
        queue = BatchQueue("q", BatchQueueConfig[int](on_error=on_error))
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce(1)
        closing = asyncio.create_task(queue.close(timeout=0.01))
        await in_on_error.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await queue.shutdown()

    async def test_on_error_that_the_deadline_cuts_off_is_not_silent(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The dead letter was not written: it is returned, or at least logged."""
        in_on_error = asyncio.Event()

        async def on_error(batch: list[int], error: BaseException) -> None:
            in_on_error.set()
            await asyncio.Event().wait()

        handler = RecordingHandler[int](fail_when=lambda _: ValueError("bad"))
        queue = BatchQueue("q", BatchQueueConfig[int](on_error=on_error))
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce(1)
        await in_on_error.wait()
        left = await queue.shutdown(timeout=0.01)
        check_settled(queue)
        assert left == [1] or errors(caplog)

    async def test_a_managers_leftovers_are_passed_on_too(self) -> None:
        calls: list[list[int]] = []
        handler = RecordingHandler[int](gate=asyncio.Event())
        config = BatchQueueConfig[int](on_error=lambda batch, _: calls.append(batch))
        manager = BatchQueueManager()
        queue = await manager.create("q", config)
        queue.add_handler(int, handler)
        await queue.produce(1)
        await manager.close(timeout=0.01)
        assert calls == [[1]]

    async def test_leaving_async_with_is_cancelled(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nobody takes the list then: it must not vanish in the background."""
        calls: list[list[int]] = []
        handler = RecordingHandler[int](gate=asyncio.Event())
        config = BatchQueueConfig[int](on_error=lambda batch, _: calls.append(batch))
        queue = BatchQueue("q", config)
        await queue.start()
        queue.add_handler(int, handler)
        await queue.produce_many([1, 2])
        closing = asyncio.create_task(queue.close(timeout=0.02))
        await turns()
        closing.cancel()
        await asyncio.wait({closing})
        await until(lambda: queue.stats().returned == 2)
        await turns()
        assert calls == [[1, 2]]
        assert errors(caplog)
