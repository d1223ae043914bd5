"""F3: whoever leaves a queue after its loop has ended gets an answer, at once."""

import asyncio
import gc
import logging
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager

PATIENCE = 30.0


async def stuck(batch: list[int]) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.fixture(autouse=True)
def _warned() -> Iterator[None]:
    """The warning that comes, too, has its own tests (`test_f4_kept_alive.py`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def made() -> BatchQueue[int]:
    return BatchQueue("q", BatchQueueConfig[int](consumer=stuck))


async def fill(queue: BatchQueue[int]) -> None:
    await queue.start()
    await queue.produce_many([1, 2])
    await asyncio.sleep(0.01)


def run_and_close(main: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main)
    loop.close()


@pytest.mark.parametrize("run", [asyncio.run, run_and_close])
def test_again_and_again_on_other_loops(run: Callable[[Any], None]) -> None:
    queue = made()
    run(fill(queue))
    assert queue.stats().returned == 2
    for _ in range(2):
        assert asyncio.run(queue.shutdown()) == []
        asyncio.run(queue.close())


def test_where_a_shutdown_was_under_way(
    asyncio_errors: list[logging.LogRecord],
) -> None:
    """Its task never ends, and nobody may wait for that."""
    queue = made()
    closings: list[asyncio.Future[Any]] = []

    async def main(queue: BatchQueue[int]) -> None:
        await fill(queue)
        closings.append(asyncio.ensure_future(queue.shutdown(None)))
        await asyncio.sleep(0.01)

    async def shut_down(queue: BatchQueue[int]) -> list[int]:
        async with asyncio.timeout(PATIENCE):
            return await queue.shutdown()

    run_and_close(main(queue))
    assert queue.stats().returned == 2
    assert asyncio.run(shut_down(queue)) == []
    closings.clear()
    del queue  # Which keeps the task.
    gc.collect()
    asyncio_errors.clear()


async def in_block() -> None:
    async with made() as queue:
        await queue.produce_many([1, 2])
        await asyncio.sleep(3600)


async def in_manager() -> None:
    async with BatchQueueManager() as manager:
        queue = await manager.create("q", BatchQueueConfig[int](consumer=stuck))
        await queue.produce_many([1, 2])
        closing = asyncio.ensure_future(manager.shutdown_all(None))
        await asyncio.sleep(3600)
        await closing


async def behind_a_deadline() -> None:
    """The timer is the loop's own, and so is collected as that is closed."""
    async with asyncio.timeout(3600), made() as queue:
        await queue.produce_many([1, 2])
        await asyncio.get_running_loop().create_future()


async def in_line() -> None:
    """While drain tasks stand in line for the loop's turn."""

    def busy(batch: list[int]) -> None:
        time.sleep(0.001)

    config = BatchQueueConfig[int](consumer=busy, max_batch=1)
    async with BatchQueue("q", config) as queue, BatchQueue("p", config) as other:
        await queue.produce_many(range(1000))
        await other.produce_many(range(1000))
        await asyncio.sleep(3600)


@pytest.mark.parametrize(
    "block",
    [in_block, in_manager, behind_a_deadline, in_line],
    ids=lambda f: f.__name__,
)
def test_a_block_that_is_collected_with_its_loop_raises_nothing(
    asyncio_errors: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    block: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """What was left was told when the loop was closed."""
    raised: list[BaseException | None] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda args: raised.append(args.exc_value)
    )

    async def begin() -> None:
        task = asyncio.ensure_future(block())
        await asyncio.sleep(0.01)
        assert not task.done()

    run_and_close(begin())
    gc.collect()
    assert raised == []
    told = [each.message for each in caplog.records if " left" in each.message]
    assert len(told) == (2 if block is in_line else 1)
    asyncio_errors.clear()
