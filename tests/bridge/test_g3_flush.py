"""G3 and F5 through the bridge: what each object's `flush` covers and reports."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DeliveryError,
    LoopThread,
    SyncBatchQueue,
    WhenFull,
    in_thread,
)
from tests.bridge.background import Stopwatch, answers, in_background, wait_until
from tests.bridge.gated import Gated, stall
from tests.support.oracle import check_accounts

Bridge = SyncBatchQueue[Any]


def fail_on_negative(batch: list[int]) -> None:
    if min(batch) < 0:
        message = f"cannot handle {batch}"
        raise ValueError(message)


def second_object(bridge: Bridge) -> Bridge:
    async def make() -> Bridge:
        return SyncBatchQueue(bridge._queue)

    return asyncio.run_coroutine_threadsafe(make(), bridge._loop).result(10)


def one_at_a_time(loop_thread: LoopThread) -> Bridge:
    """A queue that gives each item to its handler in a batch of its own."""
    config = BatchQueueConfig[Any](
        max_batch=1, consumer=fail_on_negative, on_error=lambda _batch, _error: None
    )
    return loop_thread.open("q", config)


def failures_of(call: Callable[[], None]) -> list[Any]:
    try:
        call()
    except DeliveryError as error:
        told = error
    else:
        return []
    assert told.queue_name == "q"
    assert told.count == len(told.failures)
    return [each.item for each in told.failures]


@pytest.mark.usefixtures("eager_switches")
def test_it_covers_all_that_was_accepted_before(loop_thread: LoopThread) -> None:
    """On each thread, while the others go on producing."""
    handled: set[tuple[int, int]] = set()

    class Handler:
        async def consume(self, batch: list[tuple[int, int]]) -> None:
            await asyncio.sleep(0.001)
            handled.update(batch)

    config = BatchQueueConfig[Any](buffer_size=16, consumer=Handler())
    queue: Bridge = loop_thread.open("q", config)

    def produce_and_flush(thread: int) -> None:
        for step in range(20):
            assert queue.produce((thread, 2 * step))
            assert queue.produce_many([(thread, 2 * step + 1)]) == 1
            queue.flush(10)
            assert {(thread, 2 * step), (thread, 2 * step + 1)} <= handled

    answers(in_background(produce_and_flush, n) for n in range(4))


def test_it_covers_what_the_loops_own_producers_brought(
    loop_thread: LoopThread,
) -> None:
    handler = Gated()
    queue: Bridge = loop_thread.open("q", None, {int: handler})
    put = asyncio.run_coroutine_threadsafe(
        queue._queue.produce_many(range(100)), queue._loop
    )
    assert put.result(10) == 100
    queue.flush(10)
    assert len(handler.handled) == 100


def test_it_does_not_wait_for_what_comes_later(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread)
    flush = in_background(stalled.sync_queue.flush)
    later = in_background(stalled.sync_queue.produce, 77)
    stalled.wait_for_line(1)
    assert not flush.done()
    batches = stalled.handler.batches
    stalled.handler.entered.clear()
    stalled.release()
    flush.result(10)
    assert later.result(10)
    assert [0] in batches


def test_it_ends_a_linger(loop_thread: LoopThread) -> None:
    handler = Gated()
    config = BatchQueueConfig[int](linger=30.0, consumer=handler)
    queue: Bridge = loop_thread.open("q", config)
    assert queue.produce_many([1, 2, 3]) == 3
    queue.flush(10)
    assert handler.batches == [[1, 2, 3]]


def test_each_object_is_told_what_failed_since_its_own_last_flush(
    loop_thread: LoopThread,
) -> None:
    one = one_at_a_time(loop_thread)
    two = second_object(one)
    assert one.produce(-1)
    assert failures_of(one.flush) == [-1]
    assert one.produce(-2)
    assert failures_of(two.flush) == [-1, -2]
    assert failures_of(one.flush) == [-2]
    # A new object starts with nothing.
    assert failures_of(second_object(one).flush) == []
    assert failures_of(two.flush) == failures_of(one.flush) == []


def test_flushes_at_the_same_time_share_their_objects_failures(
    loop_thread: LoopThread,
) -> None:
    """No failure is reported twice to one object, and none is lost."""
    queue = one_at_a_time(loop_thread)

    def produce_and_flush(thread: int) -> list[Any]:
        told: list[Any] = []
        for step in range(1, 21):
            assert queue.produce(-(thread * 100 + step))
            told += failures_of(lambda: queue.flush(10))
        return told

    told = answers(in_background(produce_and_flush, n) for n in range(4))
    everything = sorted(item for each in told for item in each)
    assert everything == sorted(-(n * 100 + s) for n in range(4) for s in range(1, 21))


def test_displaced_and_unhandled_items_are_failures(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread, 2, when_full=WhenFull.DROP_OLDEST)
    assert stalled.sync_queue.produce(3)
    assert stalled.sync_queue.produce_many([4, "nobody's"]) == 2
    stalled.release()
    with pytest.raises(DeliveryError) as caught:
        stalled.sync_queue.flush(10)
    assert caught.value.count == 4
    outcomes = {each.item: each.outcome for each in caught.value.failures}
    assert outcomes == {
        1: "dropped",
        2: "dropped",
        3: "dropped",
        "nobody's": "unhandled",
    }


def test_a_flush_that_takes_too_long_leaves_nothing_behind(
    loop_thread: LoopThread,
) -> None:
    stalled = stall(loop_thread)
    for timeout in (0, 0.05):
        with Stopwatch() as watch, pytest.raises(TimeoutError):
            stalled.sync_queue.flush(timeout)
        # uvloop's clock ticks in milliseconds.
        assert watch.seconds >= timeout - 0.01
    stalled.release()
    stalled.sync_queue.flush(10)
    assert stalled.handler.handled == stalled.first_items
    stalled.sync_queue.flush(10)


def test_an_empty_queue_needs_no_time(loop_thread: LoopThread) -> None:
    queue: Bridge = loop_thread.open("q", None, {int: Gated()})
    for _ in range(20):
        queue.flush(10)


def test_it_has_the_handlers_flush_too(loop_thread: LoopThread) -> None:
    calls: list[str] = []

    class Buffering(Gated):
        def on_flush(self) -> None:
            calls.append(f"flush after {len(self.handled)}")
            if len(calls) == 2:
                raise LookupError

    queue: Bridge = loop_thread.open("q", None, {int: Buffering()})
    assert queue.produce_many(range(10)) == 10
    queue.flush(10)
    with pytest.raises(DeliveryError) as caught:
        queue.flush(10)
    assert [each.outcome for each in caught.value.failures] == ["on_flush"]
    assert calls == ["flush after 10", "flush after 10"]


def test_a_handlers_thread_may_flush_its_own_queue(loop_thread: LoopThread) -> None:
    """Its own batch is left out: that one waits for it."""
    flushed: list[list[int]] = []

    def consume(batch: list[int]) -> None:
        queue.flush(10)
        flushed.append(batch)

    queue: Bridge = loop_thread.open("q", None, {int: in_thread(consume)})
    assert queue.produce_many([1, 2]) == 2
    wait_until(lambda: flushed == [[1, 2]])
    queue.flush(10)


def test_a_flush_during_shutdown_ends(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread)
    shutdown = in_background(stalled.sync_queue.shutdown, 10)
    wait_until(lambda: not stalled.sync_queue.is_running)
    flush = in_background(stalled.sync_queue.flush, 10)
    wait_until(lambda: check_accounts(stalled.sync_queue).in_flight == 1)
    stalled.release()
    assert shutdown.result(10) == []
    flush.result(10)
    stalled.sync_queue.flush(10)
