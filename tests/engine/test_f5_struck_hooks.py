"""F5, B3: a signal handler raises where several flushes wait for an `on_flush`."""

import asyncio
import contextlib

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_settled
from tests.support.striking import OUT_OF_REACH, SWEEP, USER, drive, noting, strike
from tests.support.thorough import IS_THOROUGH

STEP = 1 if IS_THOROUGH else 7
MOST_POINTS = 5_000
DRAIN_TASKS = {1: STEP, 2: 3 * STEP}

pytestmark = SWEEP


class Flushed:
    """Several flushes of a queue whose handler has an `on_flush`."""

    def __init__(self, drain_tasks: int) -> None:
        config = BatchQueueConfig[int](
            consumer=self,
            max_batch=3,
            partitions=PartitionPolicy.fixed(drain_tasks),
            drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
            selector=round_robin,
        )
        self.queue = BatchQueue("q", config)
        self.flushes: list[asyncio.Task[None]] = []

    async def consume(self, batch: list[int]) -> None:
        await asyncio.sleep(0.05)

    async def on_flush(self) -> None:
        await asyncio.sleep(0.01)

    async def flush(self) -> None:
        with contextlib.suppress(DeliveryError):
            await self.queue.flush()

    async def run(self) -> None:
        for number in range(3):
            self.queue.produce_nowait(number)
            self.queue.produce_nowait(number)
            self.flushes.append(asyncio.create_task(self.flush()))
            await asyncio.sleep(0.03)
        await asyncio.sleep(1.0)

    async def check(self) -> None:
        await asyncio.sleep(5.0)
        for number in range(3):
            assert self.queue.offer(number)
        with contextlib.suppress(DeliveryError):
            await self.queue.flush(timeout=50.0)
        await asyncio.sleep(1.0)
        assert all(each.done() for each in self.flushes)
        assert await self.queue.shutdown(20.0) == []
        check_settled(self.queue)
        # The batch whose call was struck, at most.
        assert self.queue.stats().failed <= 3


def is_at_work() -> bool:
    task = asyncio.current_task()
    return task is None or task.get_name() != USER


def struck_at(point: int, drain_tasks: int) -> bool:
    """Strike, and flush again; returns whether it was struck."""
    with contextlib.closing(VirtualTimeLoop()) as loop:
        loop.set_exception_handler(lambda *_: None)
        scene = Flushed(drain_tasks)
        loop.run_until_complete(scene.queue.start())
        interruption = Interruption(point, strike, is_at_work, at_entries=True)
        with interruption:
            drive(loop, scene.run())
        if OUT_OF_REACH not in (interruption.where or ""):
            with noting(f"point {point}, {interruption.where}"):
                drive(loop, scene.check())
    return interruption.has_acted


@pytest.mark.parametrize("drain_tasks", DRAIN_TASKS)
def test_no_handler_stays_locked_and_each_flush_ends(drain_tasks: int) -> None:
    for point in range(0, MOST_POINTS, DRAIN_TASKS[drain_tasks]):
        if not struck_at(point, drain_tasks):
            return
    pytest.fail("it never came to an end")
