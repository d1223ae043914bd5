"""D, F: a signal handler raises where queues hand a permit on, and they go on."""

import asyncio
import contextlib

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    SharedDrainTasks,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import ctrl_c
from tests.support.from_turn import InterruptionFromTurn
from tests.support.oracle import check_settled
from tests.support.striking import OUT_OF_REACH, SWEEP, drive, noting
from tests.support.struck_queue import is_in_drain_task
from tests.support.thorough import IS_THOROUGH

STEP = 1 if IS_THOROUGH else 7
MOST_POINTS = 4_000

pytestmark = SWEEP


class Chain:
    """Three queues with one permit; the handler of the second feeds the first."""

    def __init__(self) -> None:
        self.manager = BatchQueueManager()
        self.queues: list[BatchQueue[int]] = []

    async def store(self, batch: list[int]) -> None:
        await asyncio.sleep(0.05)

    async def pass_on(self, batch: list[int]) -> None:
        await self.queues[0].produce_many(batch)

    async def begin(self) -> None:
        shared = SharedDrainTasks("shared", DrainTaskPolicy.fixed(1))
        handlers = (self.store, self.pass_on, self.store)
        for number, handler in enumerate(handlers):
            config = BatchQueueConfig[int](
                consumer=handler, max_batch=2, buffer_size=4, drain_tasks=shared
            )
            self.queues.append(await self.manager.create(f"q{number}", config))

    async def feed(self) -> None:
        for number in range(4):
            for queue in self.queues:
                await queue.produce(number)
        await asyncio.sleep(2.0)

    async def check(self) -> None:
        await asyncio.sleep(10.0)
        async with asyncio.timeout(100.0):
            await self.feed()
        await asyncio.sleep(10.0)
        for stats in self.manager.stats().values():
            assert stats.waiting == stats.in_flight == 0, "it stands still"
        assert not any((await self.manager.shutdown_all(20.0)).values())
        for queue in self.queues:
            check_settled(queue)


def struck_at(point: int, points: list[int]) -> bool:
    """Strike a drain task, and let all go on; returns whether it was struck."""
    with contextlib.closing(VirtualTimeLoop()) as loop:
        loop.set_exception_handler(lambda *_: None)
        chain = Chain()
        drive(loop, chain.begin())
        strike = InterruptionFromTurn(point, ctrl_c, is_in_drain_task, loop, points)
        with strike:
            drive(loop, chain.feed())
        if OUT_OF_REACH not in (strike.where or ""):
            with noting(f"point {point}, {strike.where}"):
                drive(loop, chain.check())
    return strike.has_acted


def test_no_permit_is_lost_wherever_a_drain_task_is_struck() -> None:
    points: list[int] = []
    for point in range(0, MOST_POINTS, STEP):
        if not struck_at(point, points):
            assert point > 100
            return
    pytest.fail("it never came to an end")
