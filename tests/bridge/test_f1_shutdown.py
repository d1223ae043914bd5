"""F1 to F3 through the bridge: nothing accepted is lost, and nobody waits in vain."""

import asyncio
import itertools
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from tests.bridge.background import answers, in_background, wait_until
from tests.bridge.gated import Gated, stall
from tests.support.oracle import check_accounts, check_settled

Bridge = SyncBatchQueue[Any]
Item = tuple[int, int]


class Producers:
    """Threads and tasks that produce unique items until they are refused."""

    def __init__(self, bridge: Bridge, threads: int, tasks: int) -> None:
        self._bridge = bridge
        self._on_threads = [in_background(self._put, n) for n in range(threads)]
        self._on_loop: list[Future[list[Item]]] = [
            asyncio.run_coroutine_threadsafe(self._put_on_loop(n), bridge._loop)
            for n in range(threads, threads + tasks)
        ]

    def accepted(self) -> list[Item]:
        """Wait until all are refused; returns what was accepted of each."""
        calls = [*self._on_threads, *self._on_loop]
        return [item for each in answers(calls) for item in each]

    def _put(self, producer: int) -> list[Item]:
        accepted: list[Item] = []
        for step in itertools.count(step=4):
            if not self._bridge.produce((producer, step)):
                break
            accepted.append((producer, step))
            more = [(producer, step + n) for n in (1, 2, 3)]
            count = self._bridge.produce_many(more)
            accepted += more[:count]
            if count < 3:
                break
        return accepted

    async def _put_on_loop(self, producer: int) -> list[Item]:
        accepted: list[Item] = []
        queue = self._bridge._queue
        for step in itertools.count():
            if not await queue.produce((producer, step)):
                break
            accepted.append((producer, step))
            await asyncio.sleep(0)
        return accepted


def open_queue(
    loop_thread: LoopThread, handled: list[Item], buffer_size: int = 5
) -> Bridge:
    async def consume(batch: list[Item]) -> None:
        await asyncio.sleep(0)
        handled.extend(batch)

    # One partition per producer: so `produce_many` accepts a first part.
    config = BatchQueueConfig[Any](
        buffer_size=buffer_size,
        partitions=PartitionPolicy.fixed(8),
        drain_tasks=DrainTaskPolicy.fixed(2),
        selector=lambda item, partitions: item[0] % partitions,
    )
    return loop_thread.open("q", config, {tuple: consume})


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("buffer_size", [1, 5, 10_000])
@pytest.mark.parametrize("closers", [1, 4])
def test_what_was_accepted_is_handled_and_nothing_else(
    loop_thread: LoopThread, buffer_size: int, closers: int
) -> None:
    handled: list[Item] = []
    queue = open_queue(loop_thread, handled, buffer_size)
    producers = Producers(queue, threads=4, tasks=3)
    wait_until(lambda: len(handled) > 300)
    closing = [in_background(queue.shutdown, 10) for _ in range(closers)]
    assert answers(closing) == [[]] * closers
    accepted = producers.accepted()
    assert sorted(handled) == sorted(accepted)
    stats = check_settled(queue)
    assert stats.handled == stats.accepted == len(accepted)
    for producer in range(7):
        mine = [step for who, step in handled if who == producer]
        assert mine == list(range(len(mine)))


@pytest.mark.usefixtures("eager_switches")
def test_the_deadline_returns_what_is_left_to_one_of_the_callers(
    loop_thread: LoopThread,
) -> None:
    handled: list[Item] = []
    is_stuck = threading.Event()

    async def consume(batch: list[Item]) -> None:
        if is_stuck.is_set():
            await asyncio.sleep(60)
        handled.extend(batch)

    config = BatchQueueConfig[Any](
        buffer_size=5,
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, partitions: item[0] % partitions,
    )
    queue: Bridge = loop_thread.open("q", config, {tuple: consume})
    producers = Producers(queue, threads=4, tasks=2)
    wait_until(lambda: len(handled) > 100)
    is_stuck.set()
    wait_until(lambda: check_accounts(queue).waiting == 15)
    lists = answers([in_background(queue.shutdown, 0.2) for _ in range(3)])
    left = [item for each in lists for item in each]
    assert sorted(map(bool, lists)) == [False, False, True]
    accepted = producers.accepted()
    assert sorted(handled + left) == sorted(accepted)
    assert check_settled(queue).returned == len(left)
    with pytest.raises(DeliveryError) as caught:
        queue.flush(1)
    assert caught.value.count == len(left)


def test_closing_wakes_who_waits_with_what_was_accepted(
    loop_thread: LoopThread,
) -> None:
    stalled = stall(loop_thread, buffer_size=3)
    queue = stalled.sync_queue
    waiting = [in_background(queue.produce, 100 + n) for n in range(3)]
    with_time = in_background(queue.produce, 200, 30)
    many = in_background(queue.produce_many, range(300, 400))
    stalled.wait_for_line(5)
    closing = in_background(queue.shutdown, 10)
    assert answers(waiting) == [False] * 3
    assert with_time.result(10) is False
    assert many.result(10) == 0
    # The items in the buffer go first: the handler is still at work.
    assert not closing.done()
    stalled.release()
    assert closing.result(10) == []
    assert stalled.handler.handled == stalled.first_items
    assert check_settled(queue).rejected == 3 + 1 + 100


def test_a_first_part_that_was_accepted_is_counted_at_closing(
    loop_thread: LoopThread,
) -> None:
    stalled = stall(loop_thread, buffer_size=3)
    many = in_background(stalled.sync_queue.produce_many, range(10, 30))
    stalled.wait_for_line(1)
    stalled.handler.let_one_batch_pass()
    assert check_accounts(stalled.sync_queue).waiting == 3
    closing = in_background(stalled.sync_queue.shutdown, 10)
    assert many.result(10) == 3
    stalled.release()
    assert closing.result(10) == []
    assert stalled.handler.handled == [*stalled.first_items, 10, 11, 12]


@pytest.mark.parametrize("when_full", list(WhenFull))
def test_after_shutdown_everything_answers_at_once(
    loop_thread: LoopThread, when_full: WhenFull
) -> None:
    handler = Gated()
    config = BatchQueueConfig[Any](when_full=when_full, buffer_size=2)
    queue: Bridge = loop_thread.open("q", config, {int: handler})
    assert queue.produce(1)
    assert queue.shutdown() == []
    assert queue.produce(2) is False
    assert queue.produce(2, timeout=30) is False
    assert queue.produce("new type") is False
    assert queue.produce_many([2, "three", 4.0]) == 0
    assert queue.shutdown() == []
    assert queue.shutdown(0) == []
    queue.flush()
    assert not queue.is_running
    assert check_settled(queue).handled == 1
    assert handler.handled == [1]


def test_an_endless_producer_does_not_keep_it_open(loop_thread: LoopThread) -> None:
    handled: list[int] = []
    config = BatchQueueConfig[Any](buffer_size=100, consumer=handled.extend)
    queue: Bridge = loop_thread.open("q", config)
    calls = [in_background(queue.produce_many, itertools.count()) for _ in range(3)]
    wait_until(lambda: len(handled) > 1000)
    assert queue.shutdown(10) == []
    accepted = sum(answers(calls))
    assert len(handled) == accepted == check_settled(queue).handled


def test_a_handlers_thread_gets_its_answer_during_shutdown(
    loop_thread: LoopThread,
) -> None:
    """What it produces into its own queue is refused: that is no deadlock."""
    closed = threading.Event()
    results: list[object] = []

    async def consume(batch: list[int]) -> None:
        await asyncio.to_thread(closed.wait, 10)
        results.append(await asyncio.to_thread(queue.produce, batch[0] + 1))
        results.append(await asyncio.to_thread(queue.produce_many, [7, 8, 9]))

    queue: Bridge = loop_thread.open("q", BatchQueueConfig(buffer_size=2))
    queue.add_handler(int, consume)
    assert queue.produce(1)
    wait_until(lambda: check_accounts(queue).in_flight == 1)
    closing = in_background(queue.shutdown, 10)
    wait_until(lambda: not queue.is_running)
    closed.set()
    assert closing.result(10) == []
    assert results == [False, 0]
    assert check_settled(queue).handled == 1
