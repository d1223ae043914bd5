"""D1: at a handler's end the loop gets its turn, once 50 us have passed without one."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import groupby, pairwise
from typing import Any, Self

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, DeliveryError
from batchqueue_async._engine.loop_turn import SLICE, LoopTurn

TYPES: list[type] = [type(f"T{n}", (), {}) for n in range(40)]
TAKES = 0.4 * SLICE
"""Seconds that a handler computes: the third one passes the bound."""


class Turns:
    """Counts the loop's turns, as any other task sees them."""

    def __init__(self) -> None:
        self.now = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.now += 1
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


class Clock:
    """One that handlers alone move on, in place of the loop's."""

    def __init__(self) -> None:
        self.now = 0.0
        turn = LoopTurn.of(asyncio.get_running_loop())
        turn._clock = lambda: self.now
        turn._began = self.now

    def pass_time(self) -> None:
        self.now += TAKES


def add_handlers(queue: BatchQueue[Any], consume: Callable[[int], None]) -> None:
    """Let each type have a handler; every third one fails."""
    for number, each in enumerate(TYPES):

        def handle(_: list[Any], number: int = number) -> None:
            consume(number)
            if number % 3 == 0:
                raise ValueError

        queue.add_handler(each, handle)


async def calls_by_turn(queues: int) -> Counter[int]:
    """Have that many queues deliver 40 batches each, in one cycle each."""
    calls: Counter[int] = Counter()
    clock = Clock()
    async with AsyncExitStack() as stack:
        turns = await stack.enter_async_context(Turns())

        def consume(_: int) -> None:
            calls[turns.now] += 1
            clock.pass_time()

        config = BatchQueueConfig[Any](on_error=lambda _batch, _error: None)
        opened = [
            await stack.enter_async_context(BatchQueue(f"q{n}", config))
            for n in range(queues)
        ]
        for queue in opened:
            add_handlers(queue, consume)
        for queue in opened:
            await queue.produce_many([each() for each in TYPES])
        for queue in opened:
            with pytest.raises(DeliveryError):
                await queue.flush()
    assert calls.total() == queues * len(TYPES)
    return calls


async def test_the_bound_is_a_time_not_a_call() -> None:
    calls = await calls_by_turn(1)
    assert max(calls.values()) == 3
    # All but the last one: none is given away before.
    assert sorted(calls.values())[1:] == [3] * (len(calls) - 1)


@pytest.mark.parametrize("queues", [2, 5])
async def test_many_busy_queues_take_no_longer_than_one(queues: int) -> None:
    """Each that is woken in the same turn delivers one batch, or the turn goes on."""
    calls = await calls_by_turn(queues)
    assert max(calls.values()) <= 3 + queues - 1


@pytest.mark.real_time
async def test_on_a_real_clock_no_call_begins_after_it() -> None:
    """However busy the machine is: between two calls the clock was looked at."""
    calls: list[tuple[int, float, float]] = []
    # The loop's own work may let time pass, too, but none of it is between two calls.
    async with Turns() as turns, BatchQueue[Any]("q") as queue:

        def consume(_: int) -> None:
            began = time.monotonic()
            while time.monotonic() < began + TAKES:
                pass
            calls.append((turns.now, began, time.monotonic()))

        for each in TYPES:
            queue.add_handler(each, lambda _: consume(0))
        for _ in range(5):
            await queue.produce_many([each() for each in TYPES])
            await queue.flush()
    assert len(calls) == 5 * len(TYPES)
    for _, one_turn in groupby(calls, key=lambda call: call[0]):
        together = list(one_turn)
        (_, first, _) = together[0]
        for (_, _, ended), _ in pairwise(together):
            assert ended - first < SLICE
