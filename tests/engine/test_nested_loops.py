"""D1: a handler runs the loop from inside of itself, as with nest_asyncio."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async._loop_time import SLICE
from tests.support.oracle import check_settled

TURNS = 5_000


def run_inside(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run the loop in the middle of a task's step, until the coroutine has ended."""
    loop: Any = asyncio.get_running_loop()
    inner = loop.create_task(coroutine)
    outer = asyncio.current_task()
    assert outer is not None
    # The turn that this is part of calls as many as were ready at its begin.
    in_this_turn = len(loop._ready)
    asyncio.tasks._leave_task(loop, outer)
    try:
        for _ in range(TURNS):
            if inner.done():
                break
            loop._run_once()
    finally:
        asyncio.tasks._enter_task(loop, outer)
        for _ in range(in_this_turn):
            loop.call_soon(bool)
    if not inner.done():
        inner.cancel()
        pytest.fail("who stands in line behind the handler's drain task stood still")
    inner.result()


def test_a_handler_that_runs_the_loop_itself_does_not_hold_up_other_queues() -> None:
    handled: list[int] = []
    told: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.append(context)
        )

        def take_long(batch: list[int]) -> None:
            # So that it stands in line for the next turn after each batch.
            over = time.perf_counter() + SLICE
            while time.perf_counter() < over:
                pass
            handled.extend(batch)

        config = BatchQueueConfig[int](consumer=take_long, max_batch=1)
        async with BatchQueue("behind", config) as behind:

            def send_on(batch: list[int]) -> None:
                run_inside(behind.produce_many(batch))
                run_inside(behind.flush())

            async with BatchQueue[int](
                "in front", BatchQueueConfig(consumer=send_on, max_batch=10)
            ) as queue:
                await queue.produce_many(range(100))
                await queue.flush()
        assert check_settled(queue).handled == check_settled(behind).handled == 100

    loop = asyncio.SelectorEventLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert handled == [*range(100)]
    assert told == []
