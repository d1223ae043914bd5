"""After shutdown nothing keeps a queue, its bridge or its items alive."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async import in_thread as run_in_thread
from tests.bridge.background import answer_of, in_background, wait_until
from tests.bridge.gated import Gated


class Thing: ...


def assert_collected(*references: "weakref.ref[Any]") -> None:
    wait_until(lambda: gc.collect() >= 0 and not any(each() for each in references))


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_queue_of_a_loop_thread_that_goes_on(
    loop_thread: LoopThread, *, in_thread: bool
) -> None:
    """A program may open and close queues for as long as it runs."""

    def consume(_: list[Any]) -> None: ...

    def use() -> list[weakref.ref[Any]]:
        handler: Any = run_in_thread(consume) if in_thread else consume
        thing = Thing()
        queue: SyncBatchQueue[Any] = loop_thread.open("q", None, {Thing: handler})
        assert queue.produce(thing)
        queue.flush(10)
        assert queue.produce_many([thing, thing]) == 2
        assert queue.shutdown(10) == []
        assert not queue.produce(thing, timeout=0)
        return [weakref.ref(each) for each in (queue, queue._queue, thing)]

    assert_collected(*use())


def test_a_name_is_free_again_after_its_queues_shutdown(
    loop_thread: LoopThread,
) -> None:
    for _ in range(2):
        queue: SyncBatchQueue[Any] = loop_thread.open("q", None, {int: Gated()})
        assert queue.produce(1)
        assert queue.shutdown(10) == []


@pytest.mark.real_time
async def test_a_queue_on_a_loop() -> None:
    async def use() -> list[weakref.ref[Any]]:
        thing = Thing()
        handler = Gated()
        async with BatchQueue("q", BatchQueueConfig[Any](consumer=handler)) as queue:
            bridge = SyncBatchQueue(queue)
            call = in_background(bridge.produce_many, [thing, thing])
            assert await answer_of(call) == 2
            await answer_of(in_background(bridge.flush))
        return [weakref.ref(each) for each in (bridge, queue, handler, thing)]

    references = await use()
    await asyncio.sleep(0.01)
    await asyncio.to_thread(assert_collected, *references)


def test_everything_of_a_loop_thread(loop_kind: str) -> None:
    assert loop_kind

    def use() -> list[weakref.ref[Any]]:
        thing = Thing()
        with LoopThread() as loop_thread:
            queue: SyncBatchQueue[Any] = loop_thread.open("q", None, {Thing: Gated()})
            assert queue.produce(thing)
        return [weakref.ref(each) for each in (loop_thread, queue, queue._queue, thing)]

    assert_collected(*use())


def test_an_object_that_is_forgotten_forgets_its_failures(
    loop_thread: LoopThread,
) -> None:
    def fail(batch: list[Any]) -> None:
        message = f"cannot handle {len(batch)}"
        raise ValueError(message)

    config = BatchQueueConfig[Any](consumer=fail, on_error=lambda _batch, _error: None)
    queue: SyncBatchQueue[Any] = loop_thread.open("q", config)

    async def another() -> SyncBatchQueue[Any]:
        return SyncBatchQueue(queue._queue)

    def use() -> weakref.ref[Any]:
        second = asyncio.run_coroutine_threadsafe(another(), queue._loop).result(10)
        assert queue.produce(1)
        wait_until(lambda: second.stats().failed == 1)
        return weakref.ref(second._log)

    assert_collected(use())


def test_a_thread_that_waited_keeps_nothing(loop_thread: LoopThread) -> None:
    """A refused item is its producer's alone."""
    handler = Gated(is_open=False)
    config = BatchQueueConfig[Any](buffer_size=1, consumer=handler)
    queue: SyncBatchQueue[Any] = loop_thread.open("q", config)
    assert queue.produce(Thing())
    assert handler.entered.wait(10)
    assert queue.produce(Thing())
    references: list[weakref.ref[Any]] = []

    def refuse() -> None:
        thing = Thing()
        references.append(weakref.ref(thing))
        assert not queue.produce(thing, timeout=0.01)

    threads = [threading.Thread(target=refuse) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert_collected(*references)
    handler.gate.set()
