"""A1 through the bridge: the accounts fit together whenever a thread looks."""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
    round_robin,
)
from tests.bridge.background import answers, in_background
from tests.bridge.gated import stall
from tests.support.oracle import check_accounts, check_settled

Bridge = SyncBatchQueue[Any]


class Shaky:
    """Fails every third batch."""

    def __init__(self) -> None:
        self.calls = 0

    async def consume(self, batch: list[Any]) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        if self.calls % 3 == 0:
            message = f"no luck with {len(batch)}"
            raise ValueError(message)


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("when_full", list(WhenFull))
def test_the_accounts_fit_while_threads_produce(
    loop_thread: LoopThread, when_full: WhenFull
) -> None:
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(2),
        buffer_size=4,
        when_full=when_full,
        selector=round_robin,
        on_error=lambda _batch, _error: None,
    )
    queue: Bridge = loop_thread.open("q", config, {int: Shaky()})
    over = threading.Event()

    def produce() -> int:
        accepted = 0
        while not over.is_set():
            accepted += queue.produce(1, timeout=0.01)
            accepted += queue.produce_many([1] * 3, timeout=0)
            accepted += queue.produce_many([1] * 7, timeout=0.001)
        return accepted

    producers = [in_background(produce) for _ in range(3)]

    def look(times: int) -> None:
        for _ in range(times):
            check_accounts(queue)

    async def look_on_the_loop() -> None:
        for _ in range(500):
            check_accounts(queue._queue)
            await asyncio.sleep(0)

    try:
        looking = asyncio.run_coroutine_threadsafe(look_on_the_loop(), queue._loop)
        answers([in_background(look, 50), in_background(look, 50)])
        looking.result(20)
    finally:
        over.set()
    accepted = sum(answers(producers))
    assert queue.shutdown(10) == []
    stats = check_settled(queue)
    assert stats.accepted == accepted
    assert stats.handled > 0
    assert stats.failed > 0


@pytest.mark.parametrize("when_full", list(WhenFull))
def test_refusals_are_counted_and_displaced_items_too(
    loop_thread: LoopThread, when_full: WhenFull
) -> None:
    stalled = stall(loop_thread, buffer_size=5, when_full=when_full)

    def produce(first: int) -> int:
        items = range(first, first + 20)
        one_by_one = sum(stalled.sync_queue.produce(n, timeout=0) for n in items)
        return one_by_one + stalled.sync_queue.produce_many(items, timeout=0)

    accepted = sum(answers(in_background(produce, n * 100) for n in range(1, 5)))
    stats = check_accounts(stalled.sync_queue)
    assert stats.waiting == 5
    assert stats.accepted == accepted + 6
    if when_full is WhenFull.DROP_OLDEST:
        assert (accepted, stats.dropped, stats.rejected) == (160, 160, 0)
    else:
        assert (accepted, stats.dropped, stats.rejected) == (0, 0, 160)
    stalled.release()
    assert stalled.sync_queue.shutdown(10) == []
    assert check_settled(stalled.sync_queue).handled == 6
    assert stalled.handler.handled[0] == 0
    if when_full is WhenFull.DROP_OLDEST:
        assert all(item >= 100 for item in stalled.handler.handled[1:])
    else:
        assert stalled.handler.handled == stalled.first_items


def test_refusals_after_closing_are_counted(loop_thread: LoopThread) -> None:
    queue: Bridge = loop_thread.open("q", None, {int: Shaky()})
    assert queue.shutdown(10) == []
    assert not queue.produce(1)
    assert queue.produce_many([2, 3, "x"]) == 0
    stats = check_settled(queue)
    assert (stats.accepted, stats.rejected) == (0, 4)


@pytest.mark.usefixtures("eager_switches")
def test_displacing_keeps_the_newest_in_order(loop_thread: LoopThread) -> None:
    handled: list[tuple[int, int]] = []

    class Slow:
        async def consume(self, batch: list[tuple[int, int]]) -> None:
            handled.extend(batch)
            await asyncio.sleep(0.002)

    config = BatchQueueConfig[Any](
        buffer_size=4, when_full=WhenFull.DROP_OLDEST, linger=0.001, consumer=Slow()
    )
    queue: Bridge = loop_thread.open("q", config)

    def produce(thread: int) -> None:
        for step in range(0, 400, 8):
            assert queue.produce((thread, step))
            assert queue.produce_many([(thread, step + n) for n in range(1, 8)]) == 7

    answers(in_background(produce, n) for n in range(3))
    assert queue.shutdown(10) == []
    stats = check_settled(queue)
    assert stats.accepted == 3 * 400
    assert stats.handled == len(handled) == len(set(handled))
    assert stats.dropped == 3 * 400 - len(handled)
    for thread in range(3):
        mine = [step for who, step in handled if who == thread]
        assert mine == sorted(mine)
