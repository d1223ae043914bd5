"""B3, C4: a signal handler raises where calls of `in_thread` take their slots."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    in_thread,
    round_robin,
)
from batchqueue_async._engine.draining import drain_task
from tests.bridge.background import PATIENCE
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_settled
from tests.support.striking import OUT_OF_REACH, SWEEP, noting, strike
from tests.support.struck_queue import is_in_drain_task
from tests.support.thorough import IS_THOROUGH

MOST_POINTS = 2_000
STEP = 1 if IS_THOROUGH else 7

pytestmark = [*SWEEP, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_task, "_RECOVERY", 0.001)


class Threaded:
    """Queues with one handler, which runs on as many threads as it has slots."""

    def __init__(self, queues: int, slots: int) -> None:
        self.handled: list[Any] = []
        config = BatchQueueConfig[Any](
            consumer=in_thread(self.handle, concurrency=slots),
            max_batch=2,
            partitions=PartitionPolicy.fixed(2),
            drain_tasks=DrainTaskPolicy.fixed(2),
            selector=round_robin,
        )
        self.queues = [BatchQueue(f"q{each}", config) for each in range(queues)]

    def handle(self, batch: list[Any]) -> None:
        time.sleep(0.0005)
        self.handled += batch

    async def fill(self) -> None:
        for queue in self.queues:
            await queue.start()
            for number in range(5):
                queue.produce_nowait(number)
        await asyncio.sleep(0.01)

    async def check(self) -> None:
        for queue in self.queues:
            for number in range(4):
                assert await queue.produce((queue.name, number))
        await asyncio.sleep(0.01)
        for queue in self.queues:
            with contextlib.suppress(DeliveryError):
                await queue.flush(PATIENCE)
            for number in range(4):
                assert (queue.name, number) in self.handled
            assert await queue.shutdown(PATIENCE) == []
            check_settled(queue)


def struck_at(point: int, queues: int, slots: int) -> bool:
    """Strike a drain task, and use all queues on; returns whether it was struck."""
    # No runner: a task that asyncio has forgotten would keep it from ending.
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.set_exception_handler(lambda *_: None)
        threaded = Threaded(queues, slots)
        interruption = Interruption(point, strike, is_in_drain_task, at_entries=True)
        with interruption:
            loop.run_until_complete(threaded.fill())
        if OUT_OF_REACH not in (interruption.where or ""):
            with noting(f"point {point}, {interruption.where}"):
                loop.run_until_complete(threaded.check())
    return interruption.has_acted


@pytest.mark.parametrize("queues, slots", [(1, 1), (2, 1), (2, 2)])
def test_no_slot_is_lost_wherever_a_drain_task_is_struck(
    queues: int, slots: int
) -> None:
    for point in range(0, MOST_POINTS, STEP):
        if not struck_at(point, queues, slots):
            assert point > 100
            return
    pytest.fail("it never came to an end")
