"""C2: a cancelled `produce` leaves nothing behind.

The sweeps cancel at every turn of the loop, from before the first step of the victim
until it is done, so that the tick of the grant and the tick of acceptance are in.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.every_loop import every_loop
from tests.engine.stalled import stalled_queue
from tests.engine.until import turns, until_soon
from tests.support.oracle import check_accounts, check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

PATIENCE = 10.0
OPENS_AT = 6
VICTIM = (1000, 1001, 1002)
Produce = Callable[[BatchQueue[int]], Coroutine[Any, Any, object]]


async def _one(queue: BatchQueue[int]) -> object:
    return await queue.produce(VICTIM[0])


async def _many(queue: BatchQueue[int]) -> object:
    return await queue.produce_many(VICTIM)


async def cancelled_at(tick: int, produce: Produce, *, buffer_size: int) -> bool:
    """Cancel one of five waiting producers; returns whether it was still at work."""
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=buffer_size)) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce_many([0] * buffer_size) == buffer_size
        before = [asyncio.create_task(queue.produce(item)) for item in (1, 2)]
        victim = asyncio.create_task(produce(queue))
        after = asyncio.create_task(queue.produce_many([3, 4]))
        last = asyncio.create_task(queue.produce(5))
        for turn in range(tick):
            # Before, the line forms and waits; from then on it is being served.
            if turn == OPENS_AT:
                gate.set()
            await asyncio.sleep(0)
        was_cancelled = victim.cancel()
        gate.set()
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*before) == [True, True]
            assert await after == 2
            assert await last
            await asyncio.wait({victim})
            await queue.flush()
        check_accounts(queue)
        # Nothing is left in the line and no slot is lost: all of them can be had.
        assert [queue.produce_nowait(6) for _ in range(buffer_size)] == (
            [True] * buffer_size
        )
        assert not queue.produce_nowait(7)
    received = [item for item in handler.items if 0 < item < 6]
    assert received == [1, 2, 3, 4, 5]
    mine = [item for item in handler.items if item in VICTIM]
    if victim.cancelled():
        assert mine == list(VICTIM[: len(mine)])
        assert produce is _many or not mine, "it raised, so it did not accept"
    else:
        wanted = 3 if produce is _many else 1
        assert int(victim.result() or 0) == len(mine) == wanted  # type: ignore[call-overload]
    check_settled(queue)
    return was_cancelled


@pytest.mark.parametrize("buffer_size", [1, 2, 4])
@pytest.mark.parametrize("produce", [_one, _many])
async def test_cancelled_at_any_tick_it_leaves_nothing_behind(
    produce: Produce, buffer_size: int
) -> None:
    for tick in count():
        if not await cancelled_at(tick, produce, buffer_size=buffer_size):
            assert tick > OPENS_AT + 2, "the sweep saw both parts"
            return


@pytest.mark.parametrize("second", [1, 2])
async def test_two_cancelled_in_the_same_tick_pass_both_slots_on(second: int) -> None:
    for tick in range(20):
        async with stalled_queue(buffer_size=2) as stalled:
            waiters = [await stalled.wait_to_produce(item) for item in range(3, 8)]
            stalled.gate.set()
            await turns(tick)
            waiters[0].cancel()
            waiters[second].cancel()
            async with asyncio.timeout(PATIENCE):
                answers = await asyncio.gather(*waiters, return_exceptions=True)
            await stalled.queue.flush()
            expected = [
                item
                for item, answer in zip(range(3, 8), answers, strict=True)
                if answer is True
            ]
            assert stalled.handler.items == [0, 1, 2, *expected]
            assert len(expected) >= 3


async def test_a_cancelled_waiter_passes_its_reserved_slot_on() -> None:
    """Cancelled after the take that reserved it, and before it ran."""
    gate, hold = asyncio.Event(), asyncio.Event()
    received: list[int] = []

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        if batch == [0]:
            await gate.wait()
        if batch == [1]:
            first.cancel()
            await hold.wait()

    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await turns()
        assert queue.produce_nowait(1)
        first = asyncio.create_task(queue.produce(2))
        second = asyncio.create_task(queue.produce(3))
        await turns()
        gate.set()
        async with asyncio.timeout(PATIENCE):
            assert await second, "without a further take: the handler is held"
        assert first.cancelled()
        hold.set()
    assert received == [0, 1, 3]


async def test_cancelling_everybody_leaves_a_free_partition() -> None:
    async with stalled_queue(buffer_size=2) as stalled:
        waiters = [await stalled.wait_to_produce(item, item) for item in range(3, 9)]
        for waiter in waiters:
            waiter.cancel()
        await turns()
        assert all(waiter.cancelled() for waiter in waiters)
        stats = check_accounts(stalled.queue)
        assert (stats.accepted, stats.waiting, stats.rejected) == (3, 2, 0)
        stalled.gate.set()
        await stalled.queue.flush()
        assert stalled.queue.produce_nowait(10)
        assert stalled.queue.produce_nowait(11)
    assert stalled.handler.items == [0, 1, 2, 10, 11]


async def test_what_produce_many_had_placed_stays_when_it_is_cancelled() -> None:
    async with stalled_queue(buffer_size=2) as stalled:
        gate = stalled.gate
        waiter = await stalled.wait_to_produce(3, 4, 5, 6, 7)
        gate.set()
        # Two of its items come in with the next take, and then it is stopped.
        await until_soon(lambda: stalled.queue.stats().accepted >= 5)
        waiter.cancel()
        await asyncio.wait({waiter})
        placed = stalled.queue.stats().accepted - 3
        await stalled.queue.flush()
        assert waiter.cancelled()
        assert placed in (2, 4)
        assert stalled.handler.items == list(range(3 + placed))


async def test_a_timeout_around_produce_is_a_clean_refusal() -> None:
    async with stalled_queue() as stalled:
        for item in range(10, 15):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await stalled.queue.produce(item)
        assert check_accounts(stalled.queue).accepted == 3
    assert stalled.handler.items == [0, 1, 2]


async def test_a_refused_producer_leaves_the_line_too() -> None:
    """An error instead of a cancellation: closing the coroutine."""
    async with stalled_queue(buffer_size=1) as stalled:
        abandoned = stalled.queue.produce(5)
        abandoned.send(None)
        waiter = await stalled.wait_to_produce(2)
        abandoned.close()
        stalled.gate.set()
        async with asyncio.timeout(PATIENCE):
            assert await waiter
    assert stalled.handler.items == [0, 1, 2]
