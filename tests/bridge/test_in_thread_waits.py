"""A batch that waits for one of its handler's threads is not inside of it yet."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WouldDeadlock,
    in_thread,
    round_robin,
)
from batchqueue_async._bridge.call_slots import CallSlots, SlottedLock
from batchqueue_async._engine.handlers.handler_lock_and_call import SHARED
from batchqueue_async.telemetry import with_links
from tests.bridge.background import wait_until
from tests.engine.until import until

Handler = Callable[[list[str]], None]

real_time = pytest.mark.real_time


QUICK = 1.0
"""Seconds for a call that does nothing: a busy machine may let its thread wait."""


def several(**settings: Any) -> BatchQueueConfig[str]:  # noqa: ANN401
    """Return a config of four drain tasks that have batches at once."""
    return BatchQueueConfig[str](
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(4),
        selector=round_robin,
        **{"max_batch": 1, **settings},
    )


class Blocking:
    """Blocks its thread with any item but `quick` until it is let go."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.inside = 0
        self.handled: list[str] = []

    def consume(self, batch: list[str]) -> None:
        self.inside += 1
        if batch != ["quick"]:
            self.release.wait(30)
        self.handled.extend(batch)
        self.inside -= 1


@real_time
@pytest.mark.parametrize("concurrency", [1, 2])
async def test_it_does_not_time_out(concurrency: int) -> None:
    stuck, release = "stuck", threading.Event()
    handled: list[str] = []
    failed: list[str] = []

    def work(batch: list[str]) -> None:
        if stuck in batch:
            release.wait(30)
        time.sleep(0.02 * concurrency)
        handled.extend(batch)

    config = several(
        consumer=in_thread(work, concurrency=concurrency),
        handler_timeout=1.0,
        on_error=lambda batch, _: failed.extend(batch),
    )
    async with BatchQueue("q", config) as queue:
        # One after the other they take longer than the timeout; each by itself is far
        # below it, on a busy machine, too.
        await queue.produce_many([f"{number}" for number in range(60)])
        await queue.flush()
        assert len(handled) == 60
        assert failed == []
        await queue.produce_many([stuck] * concurrency)
        await asyncio.sleep(0.1)
        await queue.produce_many(["a", "b", "c"])
        await until(lambda: len(failed) == concurrency)
        release.set()
    assert failed == [stuck] * concurrency
    assert {"a", "b", "c"} <= set(handled)


@real_time
async def test_no_more_than_its_calls_are_inside() -> None:
    blocking = Blocking()
    config = several(consumer=in_thread(blocking, concurrency=2), slow_handler=0.05)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(["a", "b", "c", "d"])
        await until(lambda: blocking.inside == 2)
        detector = queue._parts.detector
        await until(lambda: len(detector.at_lock) == 2)
        assert len(detector.calls.inside) == 2
        blocking.release.set()
    assert sorted(blocking.handled) == ["a", "b", "c", "d"]


@real_time
@pytest.mark.parametrize("wrap", [lambda handler: handler, with_links])
async def test_two_queues_share_its_threads(wrap: Callable[[object], Handler]) -> None:
    blocking = Blocking()
    handler = in_thread(blocking)
    failed: list[str] = []
    second = BatchQueueConfig(
        consumer=wrap(handler),
        handler_timeout=QUICK,
        on_error=lambda batch, _: failed.extend(batch),
    )
    config = BatchQueueConfig(consumer=wrap(handler))
    async with BatchQueue("p", config) as one, BatchQueue("q", second) as other:
        await one.produce("slow")
        await until(lambda: blocking.inside)
        await other.produce("quick")
        await asyncio.sleep(1.2 * QUICK)
        assert blocking.inside == 1
        assert other.stats().in_flight == 1
        blocking.release.set()
    assert blocking.handled == ["slow", "quick"]
    assert failed == []


def test_queues_on_two_loops_share_its_threads(patience: None) -> None:
    blocking = Blocking()
    failed: list[str] = []
    config = BatchQueueConfig(
        consumer=in_thread(blocking),
        handler_timeout=QUICK,
        on_error=lambda batch, _: failed.extend(batch),
    )
    with LoopThread() as one, LoopThread() as other:
        first = one.open("p", replace(config, handler_timeout=None))
        second = other.open("q", config)
        assert first.produce("slow")
        wait_until(lambda: blocking.inside)
        assert second.produce("quick")
        time.sleep(1.2 * QUICK)
        assert blocking.inside == 1
        blocking.release.set()
        second.flush(10)
    assert blocking.handled == ["slow", "quick"]
    assert failed == []


@real_time
async def test_queues_take_turns_at_its_threads() -> None:
    begun: list[str] = []
    go_on = threading.Semaphore(0)

    def work(batch: list[str]) -> None:
        begun.extend(batch)
        go_on.acquire(timeout=30)

    handler = in_thread(work)
    config = BatchQueueConfig(consumer=handler, max_batch=1)
    async with BatchQueue("p", config) as one, BatchQueue("q", config) as other:
        await one.produce_many(["a"] * 3)
        await until(lambda: begun)
        await other.produce_many(["b"] * 3)
        await until(lambda: other.stats().in_flight)
        go_on.release(6)
        await one.flush()
        await other.flush()
    assert begun == ["a", "b"] * 3


@real_time
async def test_who_is_cancelled_in_the_line_leaves_no_gap() -> None:
    blocking = Blocking()
    handler = in_thread(blocking)
    config = BatchQueueConfig(consumer=handler)
    async with BatchQueue("p", config) as one, BatchQueue("r", config) as third:
        async with BatchQueue("q", config) as other:
            await one.produce("a")
            await until(lambda: blocking.inside)
            await other.produce("b")
            await until(lambda: other.stats().in_flight)
            await third.produce("c")
            await until(lambda: third.stats().in_flight)
            left = await other.shutdown(timeout=0.01)
        assert left == ["b"]
        blocking.release.set()
        await third.flush()
    assert blocking.handled == ["a", "c"]


@real_time
async def test_a_handler_of_ones_own_may_call_it() -> None:
    blocking = Blocking()
    handler = in_thread(blocking)

    async def own(batch: list[str]) -> None:
        await handler.consume(batch)

    direct = BatchQueueConfig(consumer=handler)
    config = BatchQueueConfig(consumer=own)
    async with BatchQueue("p", config) as one, BatchQueue("q", direct) as other:
        await one.produce("a")
        await until(lambda: blocking.inside)
        await other.produce("b")
        await until(lambda: other._parts.detector.at_lock)
        assert blocking.inside == 1
        blocking.release.set()
    assert blocking.handled == ["a", "b"]


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("is_shared", [False, True])
def test_calls_that_all_wait_for_who_waits_for_one_of_them(
    loop_thread: LoopThread, concurrency: int, *, is_shared: bool
) -> None:
    """Of two calls that hold the threads one at least is refused, and all go on."""
    outcomes: list[str] = []
    queues: list[SyncBatchQueue[str]] = []
    together = threading.Barrier(concurrency)

    def work(batch: list[str]) -> None:
        if "go" not in batch:
            return
        together.wait(10)
        try:
            # More than it has room for: its own drain tasks come to the line.
            queues[-1].produce_many(["x"] * 30)
        except WouldDeadlock:
            outcomes.append("refused")
        else:
            outcomes.append("went on")

    handler = in_thread(work, concurrency=concurrency)
    config = several(consumer=handler, buffer_size=1)
    queues.append(loop_thread.open("p", config))
    if is_shared:
        queues.append(loop_thread.open("q", config))
    for _ in range(concurrency):
        assert queues[0].produce("go")
    wait_until(lambda: len(outcomes) == concurrency)
    assert "refused" in outcomes
    for queue in queues:
        assert queue.shutdown(10) == []


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_call_that_goes_on_lets_the_other_wait(
    loop_thread: LoopThread, *, is_direct: bool
) -> None:
    """With a thread that comes free nobody is refused: that is no circle."""
    queues: list[SyncBatchQueue[str]] = []
    release, outcomes = threading.Event(), list[str]()

    def work(batch: list[str]) -> None:
        if batch == ["wait"]:
            release.wait(30)
        elif batch == ["go"]:
            try:
                queues[1].produce_many(["x"] * 30)
            except WouldDeadlock as error:
                outcomes.append(repr(error))
            else:
                outcomes.append("went on")

    handler = in_thread(work, concurrency=2)

    async def own(batch: list[str]) -> None:
        await handler.consume(batch)

    for name, consumer in {"p": handler, "q": handler, "own": own}.items():
        config = several(consumer=consumer, buffer_size=1)
        queues.append(loop_thread.open(name, config))
    assert queues[0 if is_direct else 2].produce("wait")
    assert queues[0].produce("go")
    detector = queues[1].queue._parts.detector
    wait_until(partial(bool, detector.at_lock))
    release.set()
    wait_until(lambda: outcomes)
    assert outcomes == ["went on"]


@real_time
async def test_a_call_that_lost_its_task_keeps_its_thread() -> None:
    blocking = Blocking()
    async with BatchQueue("q", BatchQueueConfig(consumer=in_thread(blocking))) as queue:
        await queue.produce("a")
        await until(lambda: blocking.inside)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        try:
            await queue.produce("quick")
            await until(lambda: queue._parts.detector.at_lock)
        finally:
            blocking.release.set()
    assert blocking.handled == ["a", "quick"]


@real_time
async def test_a_batch_that_no_thread_is_left_for_lets_other_handlers_go_on() -> None:
    """The threads are taken by calls that timed out and cannot be stopped."""
    blocking, others = Blocking(), list[int]()
    config = several(handler_timeout=0.05, max_batch=None)
    async with BatchQueue[Any]("q", config) as queue:
        queue.add_handler(str, in_thread(blocking, concurrency=2))
        queue.add_handler(int, others.extend)
        try:
            await queue.produce_many(["a", "b"])
            await until(lambda: len(_stuck(queue)) == 2)
            # Each of both drain tasks that are left gets one of each.
            await queue.produce_many(["c", "d", 1, 2, 3, 4])
            await until(lambda: {3, 4} <= set(others))
        finally:
            blocking.release.set()
    assert sorted(blocking.handled) == ["a", "b", "c", "d"]


def _stuck(queue: BatchQueue[Any]) -> tuple[object, ...]:
    registration = queue._parts.handlers.of(str)
    assert registration is not None
    return registration.lock.stuck


def test_a_loop_that_does_not_run_is_not_waited_for() -> None:
    slots = CallSlots(1)
    first, stopped, third = (slots.new_lock() for _ in range(3))
    loops = [asyncio.new_event_loop() for _ in range(2)]

    async def ask(lock: SlottedLock) -> asyncio.Future[None]:
        return lock.request(SHARED)

    try:
        assert first.try_acquire(SHARED)
        paused = loops[0].run_until_complete(ask(stopped))
        first.release(SHARED)
        assert loops[1].run_until_complete(ask(third)).done()
        assert not paused.done()
        third.release(SHARED)
        loops[0].run_until_complete(asyncio.wait_for(paused, 10))
    finally:
        for loop in loops:
            loop.close()


def test_a_closed_loop_leaves_the_line() -> None:
    slots = CallSlots(1)
    first, closed = slots.new_lock(), slots.new_lock()

    async def ask() -> None:
        assert not closed.request(SHARED).done()

    assert first.try_acquire(SHARED)
    asyncio.run(ask())
    first.release(SHARED)
    assert first.try_acquire(SHARED)
    first.release(SHARED)
    assert slots._line == {}


async def test_a_slot_is_for_who_came_first() -> None:
    slots = CallSlots(1)
    first, second, third = (slots.new_lock() for _ in range(3))
    assert first.try_acquire(SHARED)
    gone, next_one = second.request(SHARED), second.request(SHARED)
    gone.cancel()
    first.release(SHARED)
    # The slot is free, until who was cancelled has gone.
    assert not third.try_acquire(SHARED)
    second.withdraw(SHARED, gone)
    assert next_one.done()
