"""E3, E4: a signal handler raises in the task that rebalances; it goes on."""

import asyncio
import contextlib

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.support.from_turn import InterruptionFromTurn
from tests.support.oracle import check_settled
from tests.support.striking import SWEEP, Struck, drive, noting
from tests.support.thorough import IS_THOROUGH

MOST_POINTS = 5_000
COUNT = 6


DRAIN_TASKS = {
    "fixed": (DrainTaskPolicy.fixed(2), 11),
    "adaptive": (DrainTaskPolicy.adaptive(1, 4), 60),
}

pytestmark = SWEEP


class Uneven:
    """A queue of which one partition has half of the load."""

    def __init__(self, drain_tasks: DrainTaskPolicy) -> None:
        self.sent = 0
        self.handled: list[int] = []
        config = BatchQueueConfig[int](
            consumer=self.handle,
            max_batch=3,
            partitions=PartitionPolicy.fixed(COUNT),
            selector=lambda item, _: item % COUNT if item % 2 else 0,
            drain_tasks=drain_tasks,
            rebalancing=Rebalancing(interval=0.5),
        )
        self.queue = BatchQueue("q", config)

    async def handle(self, batch: list[int]) -> None:
        await asyncio.sleep(0.05)
        self.handled += batch

    async def feed(self) -> None:
        for _ in range(8):
            for _ in range(10):
                await self.queue.produce(self.sent)
                self.sent += 1
            await asyncio.sleep(0.2)

    async def check(self) -> None:
        before = self.queue.stats().last_round
        await self.feed()
        await asyncio.sleep(10.0)
        assert sorted(self.handled) == list(range(self.sent))
        after = self.queue.stats().last_round
        assert after is not None
        assert before is None or after.number > before.number, "rebalancing has ended"
        assert await self.queue.shutdown(10.0) == []
        check_settled(self.queue)


def is_rebalancing() -> bool:
    task = asyncio.current_task()
    return task is not None and "rebalancing" in task.get_name()


def struck_at(
    point: int,
    kind: type[BaseException],
    policy: DrainTaskPolicy,
    points: list[int],
) -> bool:
    def strike() -> None:
        raise kind

    with contextlib.closing(VirtualTimeLoop()) as loop:
        uneven = Uneven(policy)
        drive(loop, uneven.queue.start())
        interruption = InterruptionFromTurn(point, strike, is_rebalancing, loop, points)
        with interruption:
            drive(loop, uneven.feed())
        with noting(f"point {point}, {interruption.where}"):
            drive(loop, uneven.check())
    return interruption.has_acted


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Struck])
@pytest.mark.parametrize("drain_tasks", DRAIN_TASKS)
def test_rounds_go_on_and_each_partition_is_drained(
    drain_tasks: str, kind: type[BaseException]
) -> None:
    policy, step = DRAIN_TASKS[drain_tasks]
    points: list[int] = []
    for point in range(0, MOST_POINTS, 1 if IS_THOROUGH else step):
        if not struck_at(point, kind, policy, points):
            assert point > 100
            return
    pytest.fail("it never came to an end")
