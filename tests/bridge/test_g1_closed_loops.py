"""G1: no call hangs for ever on a loop that is closed, or that closes meanwhile."""

import asyncio
import gc
import logging
import time
import warnings
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    SyncBatchQueue,
)
from tests.bridge.background import (
    answers,
    in_background,
    until,
    wait_until,
)
from tests.bridge.dead import assert_dead, error_of
from tests.bridge.gated import Gated, partition_of
from tests.bridge.runners import Factory, each_loop, stopped_queue

SMALL = BatchQueueConfig[Any](buffer_size=2)

Records = list[logging.LogRecord]


@each_loop
def test_a_call_that_ends_with_its_loop_is_told_so(factory: Factory) -> None:
    """`asyncio.run` cancels all tasks at its end; nobody has cancelled the thread."""
    handler = Gated(is_open=False)

    async def main(queue: SyncBatchQueue[Any]) -> list[Any]:
        assert await queue._queue.produce(1)
        calls = [
            in_background(error_of, queue.flush),
            in_background(error_of, queue.shutdown),
        ]
        await asyncio.sleep(0.1)
        return calls

    with stopped_queue(factory, handler, SMALL) as (runner, queue):
        calls = runner.run(main(queue))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            runner.close()
        assert_dead(calls)


@each_loop
@pytest.mark.parametrize("waiting", [0, 1])
def test_a_closed_loop_accepts_nothing(
    factory: Factory, waiting: int, asyncio_errors: Records
) -> None:
    """Nobody would ever handle it, whether or not something waits already."""
    with stopped_queue(factory, Gated(), BatchQueueConfig(buffer_size=50)) as (
        runner,
        queue,
    ):
        for item in range(waiting):
            assert queue.produce(item)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            runner.close()
        accepted: list[bool] = []
        error = error_of(lambda: accepted.append(queue.produce(7)))
        assert error is None or type(error) is BatchQueueError
        assert accepted in ([], [False])
        for call in (lambda: queue.produce_many([7, 8]), queue.flush, queue.shutdown):
            error = error_of(call)
            assert error is None or type(error) is BatchQueueError
        assert queue.stats().accepted == waiting
        asyncio_errors.clear()


@each_loop
def test_a_thread_that_waits_when_its_loop_closes_is_told(
    factory: Factory, asyncio_errors: Records
) -> None:
    handler = Gated(is_open=False)
    with stopped_queue(factory, handler, SMALL) as (runner, queue):
        assert queue.produce_many([1, 2]) == 2
        blocked = in_background(error_of, lambda: queue.produce(3))
        wait_until(lambda: len(partition_of(queue).line) == 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            runner.close()
        assert_dead([blocked])
        asyncio_errors.clear()


@each_loop
def test_calls_on_a_stopped_loop_leave_no_warning_when_it_is_closed(
    factory: Factory,
) -> None:
    """`never awaited` would tell users of a mistake that is none of theirs."""
    loop = factory()

    async def start_and_stop() -> SyncBatchQueue[int]:
        async with BatchQueue("q", SMALL) as queue:
            return SyncBatchQueue(queue)

    queue = loop.run_until_complete(start_and_stop())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calls = (queue.stats, queue.flush, queue.shutdown)
        answers([in_background(error_of, call) for call in calls])
        loop.close()
        gc.collect()
    assert not [each for each in caught if "never awaited" in str(each.message)]


@each_loop
def test_a_call_that_is_under_way_as_its_loop_closes_is_told_at_once(
    factory: Factory, asyncio_errors: Records
) -> None:
    """Whatever the patience, and though the loop has been asked for a sign of life."""
    loop = factory()
    begun: list[bool] = []

    async def never() -> None:
        begun.append(True)
        await asyncio.Event().wait()

    async def start() -> SyncBatchQueue[Any]:
        async with BatchQueue("q", SMALL) as queue:
            return SyncBatchQueue(queue, patience=3600)

    queue = loop.run_until_complete(start())
    call = in_background(error_of, lambda: queue.call(never))

    async def until_it_waits() -> None:
        await until(lambda: begun)
        await asyncio.sleep(0.3)

    loop.run_until_complete(until_it_waits())
    # It is asked once more, while it does not run.
    time.sleep(0.3)
    loop.close()
    assert_dead([call])
    gc.collect()
    assert [each.getMessage() for each in asyncio_errors] == []


def test_an_error_in_the_last_turn_of_a_loop_is_not_logged_by_asyncio(
    asyncio_errors: Records,
) -> None:
    """Its caller is told that the loop is closed."""
    loop = asyncio.new_event_loop()

    async def fail() -> None:
        # The callback for its end would come in a turn that there is not.
        loop.stop()
        raise ValueError

    async def start() -> SyncBatchQueue[Any]:
        async with BatchQueue("q", SMALL) as queue:
            return SyncBatchQueue(queue, patience=3600)

    queue = loop.run_until_complete(start())
    call = in_background(error_of, lambda: queue.call(fail))
    loop.run_forever()
    loop.close()
    assert_dead([call])
    del call
    gc.collect()
    assert [each.getMessage() for each in asyncio_errors] == []
