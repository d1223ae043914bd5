"""G2: a blocking call on the loop's own thread raises at once; nobody else's does."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
    SyncBatchQueue,
)
from tests.bridge.background import answer_of, in_background
from tests.bridge.gated import Gated
from tests.bridge.runners import Factory, each_loop
from tests.support.oracle import check_settled

Bridge = SyncBatchQueue[Any]

BLOCKING: dict[str, Callable[[Bridge], object]] = {
    "produce": lambda bridge: bridge.produce(1),
    "produce for a moment": lambda bridge: bridge.produce(1, timeout=1e-9),
    "produce_many": lambda bridge: bridge.produce_many([1, 2]),
    "produce_many of nothing": lambda bridge: bridge.produce_many([]),
    "flush": lambda bridge: bridge.flush(),
    "shutdown": lambda bridge: bridge.shutdown(),
    "add_handler": lambda bridge: bridge.add_handler(str, print),
    "remove_handler": lambda bridge: bridge.remove_handler(int),
}

blocking_calls = pytest.mark.parametrize(
    "call", [pytest.param(call, id=name) for name, call in BLOCKING.items()]
)


@pytest.mark.real_time
@blocking_calls
async def test_a_blocking_call_on_the_loop_raises_at_once(
    call: Callable[[Bridge], object],
) -> None:
    handler = Gated()
    async with BatchQueue[Any]("q") as queue:
        queue.add_handler(int, handler)
        bridge: Bridge = SyncBatchQueue(queue)
        errors: list[BaseException] = []

        def attempt() -> None:
            with pytest.raises(BatchQueueError) as caught:
                call(bridge)
            errors.append(caught.value)

        attempt()
        # Items that wait open the fast path.
        assert queue.produce_nowait(0)
        attempt()
        asyncio.get_running_loop().call_soon(attempt)
        await asyncio.sleep(0.01)
        await asyncio.create_task(_run(attempt))
        assert len(errors) == 4
        assert queue.is_running
        await queue.flush()
        assert handler.handled == [0]
        assert bridge.stats().accepted == 1


async def _run(call: Callable[[], None]) -> None:
    call()


@blocking_calls
def test_a_blocking_call_in_a_handler_on_the_loop_raises_at_once(
    loop_thread: LoopThread, call: Callable[[Bridge], object]
) -> None:
    errors: list[BaseException] = []

    def consume(_: list[int]) -> None:
        try:
            call(queue)
        except BatchQueueError as error:
            errors.append(error)

    queue: Bridge = loop_thread.open("q", None, {int: consume})
    assert queue.produce(0)
    queue.flush(10)
    assert len(errors) == 1
    assert check_settled(queue).handled == 1


@pytest.mark.real_time
async def test_a_thread_with_a_loop_of_its_own_may_call() -> None:
    """It blocks that other loop, which is its own affair."""
    handler = Gated()

    def produce_from_another_loop(bridge: Bridge) -> int:
        async def main() -> int:
            assert bridge.produce(1)
            bridge.flush(10)
            return bridge.produce_many([2, 3]) + bridge.stats().accepted

        return asyncio.run(main())

    async with BatchQueue("q", BatchQueueConfig[Any](consumer=handler)) as queue:
        bridge: Bridge = SyncBatchQueue(queue)
        call = in_background(produce_from_another_loop, bridge)
        assert await answer_of(call) == 2 + 3
    assert handler.handled == [1, 2, 3]


@each_loop
def test_a_thread_that_once_ran_the_loop_may_call(factory: Factory) -> None:
    """Thread identities are used again: what counts is which loop runs here."""
    handler = Gated()
    loop = factory()

    async def start() -> Bridge:
        queue = BatchQueue("q", BatchQueueConfig[Any](consumer=handler))
        await queue.start()
        return SyncBatchQueue(queue)

    idents: list[int] = []

    def start_here() -> Bridge:
        idents.append(threading.get_ident())
        return loop.run_until_complete(start())

    bridge = in_background(start_here).result(10)
    running = in_background(loop.run_forever)

    def produce_here() -> bool:
        assert bridge.produce(1)
        bridge.flush(10)
        return threading.get_ident() in idents

    try:
        # The main thread, and threads of which one is likely to have that identity.
        produce_here()
        for _ in range(20):
            if in_background(produce_here).result(10):
                break
        assert bridge.shutdown(10) == []
    finally:
        loop.call_soon_threadsafe(loop.stop)
        running.result(10)
        loop.close()


@pytest.mark.real_time
async def test_it_is_made_on_the_loop_of_a_running_queue() -> None:
    queue = BatchQueue[int]("q")
    with pytest.raises(BatchQueueError):
        SyncBatchQueue(queue)
    await queue.start()
    with pytest.raises(BatchQueueError):
        await answer_of(in_background(SyncBatchQueue, queue))
    assert SyncBatchQueue(queue).name == "q"
    assert SyncBatchQueue(queue).is_running
    await queue.shutdown()
    with pytest.raises(BatchQueueError):
        SyncBatchQueue(queue)
