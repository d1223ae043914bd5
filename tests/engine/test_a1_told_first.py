"""A1, D2: whatever strikes a producer on the loop, no accepted item is slept over.

Producers tell the drain task before they accept. So an exception between the two leaves
at most a wake-up too many, and never an item that nobody was told of.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
    fair_by,
)
from tests.bridge.interruptions import Interruption
from tests.engine.until import until
from tests.support.oracle import check_settled

TYPES = [type(f"T{number}", (), {"__slots__": ()}) for number in range(6)]
MOST_POINTS = 2_000

ONE = BatchQueueConfig[Any](idle=IdleBackoff(1.0, 1000.0))
SETTINGS = {
    "one partition": ONE,
    "adaptive, 3 drain tasks": BatchQueueConfig[Any](
        partitions=PartitionPolicy.adaptive(),
        drain_tasks=DrainTaskPolicy.fixed(3),
        idle=IdleBackoff(1.0, 1000.0),
    ),
    "due at 2": BatchQueueConfig[Any](max_batch=2, linger=500.0),
    "drop oldest": BatchQueueConfig[Any](
        buffer_size=4, when_full=WhenFull.DROP_OLDEST, idle=IdleBackoff(1.0, 1000.0)
    ),
}


async def produce(queue: BatchQueue[Any], items: list[Any]) -> None:
    for item in items:
        await queue.produce(item)


async def produce_nowait(queue: BatchQueue[Any], items: list[Any]) -> None:
    for item in items:
        queue.produce_nowait(item)


async def produce_many(queue: BatchQueue[Any], items: list[Any]) -> None:
    await queue.produce_many(items)


Produce = Callable[[BatchQueue[Any], list[Any]], Awaitable[None]]
each_way = pytest.mark.parametrize("way", [produce, produce_nowait, produce_many])


class Struck(Exception):
    """As from a SIGALRM's handler."""


def strike() -> None:
    raise Struck


# It may strike between a coroutine's being made and being awaited, as in any program.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@each_way
@pytest.mark.parametrize("name", ["one partition", "adaptive, 3 drain tasks"])
async def test_an_exception_at_any_point_leaves_no_item_asleep(
    way: Produce, name: str
) -> None:
    items = [TYPES[number % len(TYPES)]() for number in range(3)]
    for at in range(MOST_POINTS):
        handled: list[Any] = []
        async with BatchQueue("q", SETTINGS[name]) as queue:
            for item_type in TYPES:
                queue.add_handler(item_type, handled.extend)
            # Until its drain tasks nap, with no timer that would find anything.
            await asyncio.sleep(1.0)
            interruption = Interruption(at, strike)
            producing = way(queue, items)
            try:
                with interruption:
                    await producing
            except Struck:
                pass
            # Nobody produces any more, and nothing flushes.
            await asyncio.sleep(2000.0)
            settled = check_settled(queue)
            assert settled.handled + settled.dropped == settled.accepted
        if not interruption.has_acted:
            return
    pytest.fail("it never came to an end")


ONE_BY_ONE = {
    **SETTINGS,
    "fair": BatchQueueConfig[Any](selector=fair_by(type)),
    "sizes": BatchQueueConfig[Any](size_of=lambda _: 1, buffer_bytes=100),
    "audited": BatchQueueConfig[Any](audit=True),
    "threads": BatchQueueConfig[Any](threads=True),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.* has no effect")
@pytest.mark.parametrize("waiting", [0, 1, 2])
@pytest.mark.parametrize("way", ["produce", "produce_nowait", "offer", "produce_many"])
@pytest.mark.parametrize("settings", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
async def test_what_a_signal_strikes_is_not_accepted_or_says_so(
    settings: BatchQueueConfig[Any], way: str, waiting: int
) -> None:
    for at in range(MOST_POINTS):
        async with BatchQueue("q", settings) as queue:
            queue.add_handler(object, lambda _: None)
            # One by one: of the third one nobody need be told.
            assert all(queue.produce_nowait(TYPES[0]()) for _ in range(waiting))
            interruption = Interruption(at, strike)
            struck: Struck | None = None
            try:
                with interruption:
                    if way == "produce":
                        await queue.produce(TYPES[0]())
                    elif way == "produce_many":
                        await queue.produce_many([TYPES[0]()])
                    else:
                        getattr(queue, way)(TYPES[0]())
            except Struck as error:
                struck = error
            if interruption.has_acted:
                came = 1 if struck is None else getattr(struck, "accepted", 0)
                assert queue.stats().accepted == waiting + came, interruption.where
        if not interruption.has_acted:
            return
    pytest.fail("it never came to an end")


def keep_answer(answers: list[object], put: Callable[[Any], object], item: Any) -> None:  # noqa: ANN401
    answers.append(put(item))


def are_as_many(handled: list[Any], answers: list[object]) -> bool:
    return len(handled) == answers.count(True)


def at_depth(free: int, call: Callable[[], object]) -> object:
    """Call with so many frames left on the stack."""

    def descend(left: int) -> object:
        return call() if left <= 0 else descend(left - 1)

    depth = 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return descend(sys.getrecursionlimit() - depth - free)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
async def test_a_producer_deep_in_the_stack_accepts_or_raises_and_never_both(
    settings: BatchQueueConfig[Any],
) -> None:
    raised = 0
    for free in range(1, 60):
        handled: list[Any] = []
        async with BatchQueue("q", settings) as queue:
            queue.add_handler(object, handled.extend)
            # Until its drain tasks nap, with no timer that would find anything.
            await asyncio.sleep(1.0)
            answers: list[object] = []

            put = partial(keep_answer, answers, queue.produce_nowait, 1)
            try:
                at_depth(free, put)
            except RecursionError:
                raised += 1
            assert queue.stats().accepted == answers.count(True)
            await asyncio.sleep(2000.0)
            assert handled == [1] * answers.count(True)
            check_settled(queue)
    assert 0 < raised < 59


@pytest.mark.real_time
async def test_so_does_one_on_a_thread() -> None:
    raised = 0
    for free in range(1, 60):
        handled: list[Any] = []
        async with BatchQueue(
            "q", BatchQueueConfig[int](consumer=handled.extend)
        ) as queue:
            bridge = SyncBatchQueue(queue)
            answers: list[object] = []

            put = partial(keep_answer, answers, bridge.produce, 1)
            try:
                await asyncio.to_thread(at_depth, free, put)
            except RecursionError:
                raised += 1
            await until(partial(are_as_many, handled, answers))
            # What the stack was too short for is neither in, nor does it block others.
            assert queue.stats().accepted == answers.count(True)
            assert await asyncio.to_thread(bridge.produce, 2)
    assert 0 < raised < 59
