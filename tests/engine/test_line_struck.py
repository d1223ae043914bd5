"""A signal handler raises as a callback of the loop begins: the next call heals it.

The callback is gone then. The drain tasks that stand in line for a turn, or the one
that was to be woken, have nobody else.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async._loop_time import SLICE, Asleep, LoopTurn
from tests.engine.until import turns, until_soon
from tests.support.oracle import check_settled
from tests.support.striking import Struck

ITEMS = 50
Verb = Callable[[BatchQueueManager], Coroutine[Any, Any, None]]


async def by_a_flush(manager: BatchQueueManager) -> None:
    await manager.queues[0].flush()


async def by_a_shutdown(manager: BatchQueueManager) -> None:
    await manager.queues[0].shutdown(None)


async def by_another_shutdown(manager: BatchQueueManager) -> None:
    await manager.queues[0].shutdown(None)


async def by_another_shutdown_of_all(manager: BatchQueueManager) -> None:
    await manager.shutdown_all(None)


UNDER_WAY: dict[Verb, Verb] = {
    by_another_shutdown: by_a_shutdown,
    by_another_shutdown_of_all: by_another_shutdown_of_all,
}


def expire_each_slice(turn: LoopTurn) -> None:
    """Let each drain task stand in line for each of its handler calls."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 2 * SLICE
        return now

    turn._clock = clock


class Strike:
    """Raises as a callback begins, once it is armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.is_armed = False
        original = getattr(owner, name)

        def begin(each: object) -> None:
            if self.is_armed:
                self.is_armed = False
                raise Struck
            original(each)

        monkeypatch.setattr(owner, name, begin)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)


@pytest.mark.parametrize(
    "verb",
    [by_a_flush, by_a_shutdown, by_another_shutdown, by_another_shutdown_of_all],
)
async def test_the_next_call_moves_the_line_on(
    verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[int] = []
    strike = Strike(monkeypatch, LoopTurn, "_begin")
    turn = LoopTurn.of(asyncio.get_running_loop())
    expire_each_slice(turn)
    config = BatchQueueConfig[int](
        consumer=handled.extend,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=round_robin,
        max_batch=1,
    )
    async with BatchQueueManager() as manager:
        queue = await manager.create("q", config)
        await queue.produce_many(range(ITEMS))
        first = asyncio.create_task(under_way(verb, manager))
        await turns(10)
        await until_soon(lambda: turn._line)
        strike.is_armed = True
        await turns(10)
        assert not strike.is_armed
        before = len(handled)
        await turns(10)
        assert len(handled) == before < ITEMS
        await verb(manager)
        await first
        assert sorted(handled) == [*range(ITEMS)]
        check_settled(queue)


async def under_way(verb: Verb, manager: BatchQueueManager) -> None:
    if verb in UNDER_WAY:
        await UNDER_WAY[verb](manager)


@pytest.mark.parametrize("verb", [by_a_shutdown, by_another_shutdown_of_all])
async def test_a_shutdown_wakes_a_drain_task(
    verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    strike = Strike(monkeypatch, Asleep, "_resume")
    async with BatchQueueManager() as manager:
        queue = await manager.create("q", BatchQueueConfig[int](consumer=print))
        await turns(10)
        strike.is_armed = True
        first = asyncio.create_task(verb(manager))
        await turns(10)
        assert not strike.is_armed
        await queue.shutdown(None)
        await first
