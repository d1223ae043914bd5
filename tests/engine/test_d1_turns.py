"""D1: at a handler's end the loop gets its turn, once 50 us have passed without one."""

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from itertools import groupby, pairwise
from logging import LogRecord
from types import FrameType
from typing import Any, Self
from unittest.mock import patch

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async._loop_time import SLICE, LoopTurn
from tests.engine.sharing import sharing
from tests.engine.until import turns, until_soon
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

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

    def __init__(self, takes: float = TAKES) -> None:
        self.now = 0.0
        self._takes = takes
        turn = LoopTurn.of(asyncio.get_running_loop())
        turn._clock = lambda: self.now
        turn._began = self.now

    def pass_time(self) -> None:
        self.now += self._takes


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
        seen = await stack.enter_async_context(Turns())

        def consume(_: int) -> None:
            calls[seen.now] += 1
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


@pytest.mark.parametrize("queues", [2, 5, 100])
async def test_many_busy_queues_take_no_longer_than_one(queues: int) -> None:
    """However many are ready in the same turn: the rest of them come in later ones."""
    calls = await calls_by_turn(queues)
    assert max(calls.values()) == 3


@pytest.mark.parametrize("partitions, drain_tasks", [(40, 40), (40, 3), (400, 1)])
async def test_nor_does_one_queue_of_many_parts(
    partitions: int, drain_tasks: int
) -> None:
    calls: Counter[int] = Counter()
    clock = Clock()
    types = [type(f"P{n}", (), {}) for n in range(partitions)]
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(partitions),
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
    )
    async with Turns() as seen, BatchQueue("q", config) as queue:

        def consume(_: list[Any]) -> None:
            calls[seen.now] += 1
            clock.pass_time()

        for each in types:
            queue.add_handler(each, consume)
        for _ in range(3):
            await queue.produce_many([each() for each in types])
            await queue.flush()
    assert calls.total() == 3 * partitions
    assert max(calls.values()) == 3


@pytest.mark.parametrize("permits", [1, 2, 5])
async def test_nor_do_queues_that_share_drain_tasks(permits: int) -> None:
    calls: Counter[int] = Counter()
    clock = Clock()
    async with Turns() as seen:

        def consume(_: list[Any]) -> None:
            calls[seen.now] += 1
            clock.pass_time()

        async with sharing(permits, *[consume] * 6, max_batch=1) as queues:
            for queue in queues:
                await queue.produce_many([0] * 20)
    assert calls.total() == 6 * 20
    assert max(calls.values()) == 3


class Busy:
    """Queues whose handlers find the next item waiting, until told to stop."""

    def __init__(self, count: int, pass_time: Callable[[], None]) -> None:
        self.calls: Counter[int] = Counter()
        self.order: list[int] = []
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.is_busy = True
        self._pass_time = pass_time
        config = BatchQueueConfig[int](on_error=lambda _batch, _error: None)
        self.queues = [BatchQueue[int](f"q{n}", config) for n in range(count)]
        for number, queue in enumerate(self.queues):
            queue.add_handler(int, partial(self._consume, number))

    async def __aenter__(self) -> Self:
        for queue in self.queues:
            await queue.start()
            await queue.produce(0)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.is_busy = False
        for queue in self.queues:
            await queue.shutdown()
            check_settled(queue)

    async def until_called(self, times: int) -> None:
        await until_soon(lambda: self.calls.total() >= times)

    def _consume(self, number: int, _: list[int]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks[number] = task
        self.calls[number] += 1
        self.order.append(number)
        self._pass_time()
        if self.is_busy:
            self.queues[number].produce_nowait(0)


async def test_first_come_first_served() -> None:
    clock = Clock(takes=2 * SLICE)
    async with Busy(20, clock.pass_time) as busy:
        await busy.until_called(200)
        assert max(busy.calls.values()) - min(busy.calls.values()) <= 1
        assert busy.order[20:40] == busy.order[40:60] == busy.order[60:80]


async def test_a_lone_busy_one_does_not_keep_a_latecomer_waiting() -> None:
    clock = Clock(takes=2 * SLICE)
    async with Busy(3, clock.pass_time) as busy:
        late = RecordingHandler[int]()
        async with BatchQueue("late", BatchQueueConfig[int](consumer=late)) as queue:
            await turns(20)
            await queue.produce(1)
            before = busy.calls.total()
            await until_soon(lambda: late.items)
            assert busy.calls.total() - before <= 3 + 1


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("victim", range(4))
async def test_one_that_is_cancelled_in_line_keeps_nobody_waiting(
    victim: int, after: int
) -> None:
    clock = Clock(takes=2 * SLICE)
    async with Busy(4, clock.pass_time) as busy:
        await busy.until_called(8)
        await turns(after)
        before = busy.calls.copy()
        busy.tasks[victim].cancel()
        await busy.until_called(before.total() + 40)
        # A stray one: it goes on.
        assert min((busy.calls - before).values()) >= 8
        assert len(busy.calls - before) == 4


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("victim", range(4))
async def test_one_whose_deadline_comes_in_line_returns_what_is_left(
    victim: int, after: int
) -> None:
    clock = Clock(takes=2 * SLICE)
    async with Busy(4, clock.pass_time) as busy:
        await busy.until_called(8)
        await turns(after)
        stats = busy.queues[victim].stats
        left = await busy.queues[victim].shutdown(0)
        assert len(left) == stats().accepted - stats().handled <= 1
        before = busy.calls.copy()
        await busy.until_called(before.total() + 30)
        assert sorted((busy.calls - before).values()) == [10, 10, 10]


async def test_each_keeps_its_own_context() -> None:
    """Also where the loop's turn runs one after the other."""
    last: ContextVar[int | None] = ContextVar("last", default=None)
    seen: set[tuple[int, int | None]] = set()

    def consume(number: int, _: list[Any]) -> None:
        clock.pass_time()
        seen.add((number, last.get()))
        last.set(number)

    clock = Clock(takes=2 * SLICE)
    async with AsyncExitStack() as stack:
        for number in range(4):
            queue = await stack.enter_async_context(BatchQueue[Any](f"q{number}"))
            for each in TYPES:
                queue.add_handler(each, partial(consume, number))
            await queue.produce_many([each() for each in TYPES])
    assert seen == {(n, before) for n in range(4) for before in (None, n)}


@pytest.mark.real_time
@pytest.mark.parametrize("queues", [1, 100])
async def test_a_handler_that_takes_longer_is_the_turns_only_one(queues: int) -> None:
    """Counted: on a real clock, of calls that spin for two slices each."""

    def spin() -> None:
        began = time.monotonic()
        while time.monotonic() < began + 2 * SLICE:
            pass
        calls[seen.now] += 1

    calls: Counter[int] = Counter()
    async with Turns() as seen, Busy(queues, spin) as busy:
        # They do not all start in one turn.
        await busy.until_called(5 * queues)
        before = busy.calls.copy()
        await busy.until_called(before.total() + 1000)
        since = (busy.calls - before).values()
    assert len(since) == queues
    assert max(since) - min(since) <= 1
    assert max(calls.values()) == 1


@pytest.mark.real_time
async def test_on_a_real_clock_no_call_begins_after_it() -> None:
    """However busy the machine is: between two calls the clock was looked at."""
    calls: list[tuple[int, float, float]] = []
    # The loop's own work may let time pass, too, but none of it is between two calls.
    async with Turns() as seen, BatchQueue[Any]("q") as queue:

        def consume(_: int) -> None:
            began = time.monotonic()
            while time.monotonic() < began + TAKES:
                pass
            calls.append((seen.now, began, time.monotonic()))

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


@pytest.mark.asyncio(loop_factories=["virtual"])
@pytest.mark.parametrize("heals", ["flush", "shutdown"])
async def test_who_stands_in_line_comes_on_after_a_strike_at_the_turn(
    heals: str, asyncio_errors: list[LogRecord]
) -> None:
    """A signal handler raises as the turn begins: nobody else would ask for one."""
    struck = False

    def strike(frame: FrameType, event: str, _: object) -> None:
        nonlocal struck
        is_there = frame.f_code.co_qualname == "LoopTurn._begin"
        if event == "call" and is_there and not struck:
            struck = True
            raise TimeoutError

    handled: list[int] = []
    config = BatchQueueConfig[int](
        consumer=handled.extend,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=round_robin,
    )
    queue = BatchQueue("q", config)
    await queue.start()
    turn = LoopTurn.of(asyncio.get_running_loop())
    await asyncio.sleep(1.0)
    with (
        patch.object(turn, "_began", math.inf),
        patch.object(LoopTurn, "is_over", lambda _: True),
    ):
        sys.setprofile(strike)
        await queue.produce_many(range(4))
        await asyncio.sleep(0.01)
        sys.setprofile(None)
    asyncio_errors.clear()
    assert struck
    assert handled == []
    await asyncio.sleep(1.0)
    if heals == "flush":
        await queue.flush(1.0)
    assert await queue.shutdown(1.0) == []
    assert sorted(handled) == [0, 1, 2, 3]
