"""A1: a wake-up that raises has woken nobody, and the next one wakes all the same."""

import asyncio
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import cast

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async._loop_time import Sleeper

DEEPEST = 40
"""More frames than one `produce_nowait` and a wake-up take."""


def depth() -> int:
    frame, count = sys._getframe(), 0
    while (caller := frame.f_back) is not None:
        frame, count = caller, count + 1
    return count


def at_depth(left: int, act: Callable[[], object]) -> object:
    return act() if left <= 0 else at_depth(left - 1, act)


@pytest.mark.parametrize("linger", [0.0, 0.01])
async def test_a_stack_that_ends_anywhere_keeps_no_later_item_waiting(
    linger: float,
) -> None:
    raised = 0
    for short_of in range(DEEPEST):
        handled: list[int] = []
        config = BatchQueueConfig[int](consumer=handled.extend, linger=linger)
        async with BatchQueue[int]("q", config) as queue:
            await asyncio.sleep(1.0)
            room = sys.getrecursionlimit() - depth() - short_of
            try:
                at_depth(room, lambda queue=queue: queue.produce_nowait(0))  # type: ignore[misc]
            except RecursionError:
                raised += 1
            await asyncio.sleep(1.0)
            assert len(handled) == queue.stats().accepted
            assert queue.produce_nowait(1)
            await asyncio.sleep(1.0)
            assert len(handled) == queue.stats().accepted
    assert 5 < raised < DEEPEST


class Broken(Exception):
    """What a signal handler raises."""


async def test_a_sleeper_whose_wake_up_failed_can_be_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    sleeper = Sleeper(loop)

    async def sleep() -> None:
        await sleeper

    task = asyncio.create_task(sleep())
    await asyncio.sleep(0)

    def call_soon(*_: object, **__: object) -> None:
        raise Broken

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_soon", call_soon)
        with pytest.raises(Broken):
            sleeper.wake()
    await asyncio.sleep(0)
    assert not task.done()
    sleeper.wake()
    sleeper.wake()
    await task


@pytest.mark.parametrize("is_woken", [False, True])
async def test_who_is_asleep_can_be_cancelled(*, is_woken: bool) -> None:
    sleeper = Sleeper(asyncio.get_running_loop())

    async def sleep() -> None:
        await sleeper

    task = asyncio.create_task(sleep())
    await asyncio.sleep(0)
    if is_woken:
        sleeper.wake()
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task


async def test_who_is_woken_goes_on_in_a_context_of_his_own() -> None:
    """Not in that of who wakes him; and for asyncio it is like a future."""
    name = ContextVar("name", default="nobody")
    sleeper = Sleeper(asyncio.get_running_loop())
    assert asyncio.isfuture(cast("object", sleeper))

    async def sleep() -> str:
        name.set("sleeper")
        await sleeper
        return name.get()

    task = asyncio.create_task(sleep())
    await asyncio.sleep(0)
    name.set("waker")
    sleeper.wake()
    assert await task == "sleeper"
