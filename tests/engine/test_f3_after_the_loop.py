"""F3: whoever leaves a queue after its loop has ended gets an answer, at once."""

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig

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


def test_a_block_that_is_collected_after_its_loop_raises_nothing(
    asyncio_errors: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left was told when the loop was closed."""
    queue = made()
    raised: list[BaseException | None] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda args: raised.append(args.exc_value)
    )

    async def main() -> None:
        async with queue:
            await queue.produce_many([1, 2])
            await asyncio.get_running_loop().create_future()

    async def begin() -> None:
        task = asyncio.ensure_future(main())
        await asyncio.sleep(0.01)
        assert not task.done()

    run_and_close(begin())
    assert queue.stats().returned == 2
    gc.collect()
    assert raised == []
    asyncio_errors.clear()
