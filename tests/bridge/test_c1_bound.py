"""C1 through the bridge: never more than `buffer_size` wait, whoever produces."""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from tests.bridge.background import (
    PATIENCE,
    all_answers,
    in_background,
    wait_until,
)
from tests.bridge.gated import Gated, partition_of, stall
from tests.support.oracle import check_accounts, check_settled

SPLIT = 2


class Watch:
    """The most that any partition ever held, as seen from wherever one looks."""

    def __init__(self, queue: BatchQueue[Any]) -> None:
        self._partitions = queue._parts.partitions
        self.most = 0
        self.is_over = False

    def look(self) -> None:
        for each in self._partitions:
            waiting = each.items
            count = len(waiting)
            # Else it was taken meanwhile: it is a batch, and grows by other partitions.
            if each.items is waiting:
                self.most = max(self.most, count)

    def look_on(self) -> None:
        while not self.is_over:
            self.look()


def put(bridge: SyncBatchQueue[int], watch: Watch, seed: int) -> int:
    accepted = 0
    for step in range(60):
        item = seed + step
        timeout = (None, 0, 0.001)[step % 3]
        if step % 5 == 0:
            accepted += bridge.produce_many([item] * 4, timeout)
        else:
            accepted += bridge.produce(item, timeout)
        watch.look()
    return accepted


async def put_on_loop(queue: BatchQueue[int], watch: Watch, seed: int) -> int:
    accepted = 0
    for step in range(60):
        item = seed + step
        if step % 3 == 0:
            accepted += queue.produce_nowait(item)
        elif step % 3 == 1:
            accepted += await queue.produce(item)
        else:
            accepted += await queue.produce_many([item] * 3)
        watch.look()
        await asyncio.sleep(0)
    return accepted


@pytest.mark.real_time
@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("buffer_size", [1, 3])
async def test_the_bound_holds_with_producers_on_threads_and_on_the_loop(
    when_full: WhenFull, buffer_size: int
) -> None:
    batches: list[int] = []

    async def consume(batch: list[int]) -> None:
        batches.append(len(batch))
        watch.look()
        await asyncio.sleep(0)

    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(SPLIT),
        buffer_size=buffer_size,
        when_full=when_full,
        selector=lambda item, partitions: item % partitions,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        bridge, watch = SyncBatchQueue(queue), Watch(queue)
        watcher = in_background(watch.look_on)
        on_threads = [in_background(put, bridge, watch, n * 1000) for n in range(4)]
        on_loop = await asyncio.gather(
            *(put_on_loop(queue, watch, n * 1000) for n in range(4, 7))
        )
        accepted = sum(on_loop) + sum(await all_answers(on_threads))
        watch.is_over = True
        await all_answers([watcher])
    assert watch.most <= buffer_size
    assert max(batches) <= buffer_size * SPLIT
    stats = check_settled(queue)
    assert stats.accepted == accepted
    assert stats.handled == sum(batches) == accepted - stats.dropped


def test_true_means_accepted_and_waiting_at_once(loop_thread: LoopThread) -> None:
    """Also while the loop does not run: nothing has to carry the item over."""
    stalled = threading.Event()
    handler = Gated()
    queue: SyncBatchQueue[int] = loop_thread.open("q", None, {int: handler})

    async def stall_loop() -> None:
        stalled.set()
        held.wait(10)

    held = threading.Event()
    loop = queue._loop
    blocked = asyncio.run_coroutine_threadsafe(stall_loop(), loop)
    assert stalled.wait(10)
    for number in range(1, 6):
        assert queue.produce(number)
        assert queue._queue.stats().waiting == number
    assert queue.produce_many([6, 7]) == 2
    assert queue._queue.stats().waiting == 7
    held.set()
    blocked.result(10)
    queue.flush(10)
    assert handler.handled == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("buffer_size", [1, 2, 7])
def test_what_waits_in_line_is_not_accepted_yet(
    loop_thread: LoopThread, buffer_size: int
) -> None:
    stalled = stall(loop_thread, buffer_size)
    calls = [in_background(stalled.sync_queue.produce, 100 + n) for n in range(3)]
    many = in_background(stalled.sync_queue.produce_many, range(200, 205))
    stalled.wait_for_line(4)
    stats = check_accounts(stalled.sync_queue)
    assert (stats.accepted, stats.waiting) == (buffer_size + 1, buffer_size)
    assert not any(each.done() for each in calls)
    assert not many.done()
    stalled.release()
    assert [each.result(10) for each in calls] == [True] * 3
    assert many.result(10) == 5


def test_a_long_produce_many_never_holds_more_than_the_bound(
    loop_thread: LoopThread,
) -> None:
    most = 0

    async def consume(batch: list[int]) -> None:
        nonlocal most
        most = max(most, len(batch), len(partition_of(queue).items))
        await asyncio.sleep(0)

    config = BatchQueueConfig[int](buffer_size=7, consumer=consume)
    queue = loop_thread.open("q", config)
    assert queue.produce_many(iter(range(25_000))) == 25_000
    queue.flush(10)
    assert most == 7
    assert check_settled(queue).handled == 25_000


def test_a_full_partition_does_not_hold_up_the_others(loop_thread: LoopThread) -> None:
    gated, free = Gated(is_open=False), Gated()
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.adaptive(), buffer_size=1)
    queue: SyncBatchQueue[Any] = loop_thread.open("q", config, {int: gated, str: free})
    other: SyncBatchQueue[Any] = loop_thread.open("other", None, {int: free})
    assert queue.produce(0)
    assert gated.entered.wait(10)
    assert queue.produce(1)
    blocked = in_background(queue.produce, 2)
    wait_until(lambda: queue.stats().partitions[0].waiting == 1)
    assert queue.produce("a", timeout=0)
    assert other.produce_many(range(10), timeout=PATIENCE) == 10
    assert not blocked.done()
    gated.gate.set()
    assert blocked.result(10)
