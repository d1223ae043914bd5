"""F: a handler whose `on_close` was due and did not complete is named; what it had
merged is lost, although it counts as handled."""

import asyncio
import logging

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.every_loop import every_loop
from tests.engine.observing import cancel_drain_tasks
from tests.engine.until import turns, until

pytestmark = every_loop


class Merging:
    """Writes out in `on_close` what it has merged."""

    def __init__(self, delay: float = 0.0, error: Exception | None = None) -> None:
        self.delay = delay
        self.error = error
        self.merged = 0
        self.begun = 0
        self.written = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def consume(self, batch: list[object]) -> None:
        await self.gate.wait()
        self.merged += len(batch)

    async def on_close(self) -> None:
        self.begun += 1
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        self.written = self.merged


class Other(Merging):
    """A second one."""


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


async def opened(*handlers: tuple[type, Merging]) -> BatchQueue[object]:
    queue = BatchQueue[object]("q", BatchQueueConfig[object]())
    await queue.start()
    for item_type, handler in handlers:
        queue.add_handler(item_type, handler)
        await queue.produce(item_type())
    return queue


async def test_when_all_is_closed_nobody_is_named() -> None:
    queue = await opened((int, Merging()), (str, Other()))
    assert queue.stats().not_closed == ()
    assert await queue.shutdown() == []
    assert queue.stats().not_closed == ()


async def test_who_has_no_on_close_is_not_named() -> None:
    gate = asyncio.Event()

    async def consume(batch: list[object]) -> None:
        await gate.wait()

    queue = BatchQueue[object]("q", BatchQueueConfig[object](consumer=consume))
    await queue.start()
    await queue.produce(1)
    assert await queue.shutdown(timeout=0.01) == [1]
    assert queue.stats().not_closed == ()


async def test_skipped_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    handler, other = Merging(), Other()
    queue = await opened((int, handler), (str, other))
    await queue.flush()
    handler.gate.clear()
    await queue.produce(2)
    assert await queue.shutdown(timeout=0.01) == [2]
    assert queue.stats().not_closed == ("Merging of int", "Other of str")
    assert handler.begun == other.begun == 0
    for name in queue.stats().not_closed:
        assert any("on_close" in each and name in each for each in errors_in(caplog))


async def test_cut_off_at_the_deadline_and_skipped_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler, other = Merging(delay=1000.0), Other()
    queue = await opened((int, handler), (str, other))
    assert await queue.shutdown(timeout=0.05) == []
    assert (handler.begun, other.begun) == (1, 0)
    assert queue.stats().not_closed == ("Merging of int", "Other of str")
    assert any("Merging of int was cut off" in each for each in errors_in(caplog))
    assert any("Other of str was not called" in each for each in errors_in(caplog))


async def test_one_that_raised_is_named(caplog: pytest.LogCaptureFixture) -> None:
    handler, other = Merging(error=OSError("the disk is full")), Other()
    queue = await opened((int, handler), (str, other))
    assert await queue.shutdown() == []
    assert queue.stats().not_closed == ("Merging of int",)
    assert other.written == 1
    assert any("on_close of Merging of int failed" in e for e in errors_in(caplog))


async def test_one_that_does_not_stop_is_named() -> None:
    class Stubborn(Merging):
        async def on_close(self) -> None:
            while not self.gate.is_set():
                try:
                    await self.gate.wait()
                except asyncio.CancelledError:
                    continue

    handler = Stubborn()
    queue = await opened((int, handler))
    await queue.flush()
    handler.gate.clear()
    assert await queue.shutdown(timeout=0.01) == []
    assert queue.stats().not_closed == (
        "test_one_that_does_not_stop_is_named.<locals>.Stubborn of int",
    )
    handler.gate.set()
    await turns()


async def test_a_retired_one_that_is_cut_off_at_the_deadline() -> None:
    handler = Merging(delay=1000.0)
    queue = await opened((int, handler))
    await queue.flush()
    queue.remove_handler(int)
    await until(lambda: handler.begun)
    await queue.shutdown(timeout=0.01)
    assert queue.stats().not_closed == ("Merging of int",)


@pytest.mark.parametrize("are_all_cancelled", [True, False])
async def test_of_several_retired_ones_a_cancelled_drain_task_forgets_none(
    *, are_all_cancelled: bool
) -> None:
    handlers = [Merging(delay=0.01), Other(), Other()]
    types = (int, str, bytes)
    queue = await opened(*zip(types, handlers, strict=True))
    await queue.flush()
    for each in types:
        queue.remove_handler(each)
    await until(lambda: handlers[0].begun)
    if are_all_cancelled:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    await cancel_drain_tasks(queue)
    await until(lambda: handlers[2].begun)
    await queue.shutdown()
    assert [each.begun for each in handlers] == [1, 1, 1]
    assert [each.written for each in handlers] == [0, 1, 1]
    assert queue.stats().not_closed == ("Merging of int",)


async def test_a_closing_that_is_cut_short_calls_nobody_twice() -> None:
    for tick in range(30):
        handler, other = Merging(delay=0.001), Other(delay=0.001)
        queue = await opened((int, handler), (str, other))
        closing = asyncio.create_task(queue.shutdown())
        await turns(tick)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait({closing})
        async with asyncio.timeout(30.0):
            await queue.shutdown()
        assert handler.begun <= 1
        assert other.begun <= 1
        unwritten = [each for each in (handler, other) if not each.written]
        stats = queue.stats()
        assert len(stats.not_closed) <= len(unwritten) + stats.failed
        for each in unwritten:
            name = type(each).__name__
            assert not each.merged or any(name in e for e in stats.not_closed)
