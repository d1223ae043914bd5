"""B3, F: what strikes at a handler's lock leaves nobody locked in, or out."""

import asyncio
import contextlib
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.engine.observing import tasks_of
from tests.support.from_turn import InterruptionFromTurn
from tests.support.oracle import check_settled
from tests.support.striking import SWEEP, Struck, strike
from tests.support.thorough import IS_THOROUGH

MOST_POINTS = 4_000


pytestmark = SWEEP


class Slow:
    """Takes its time; with hooks, if they are wanted."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def consume(self, batch: list[int]) -> None:
        await asyncio.sleep(0.05)
        self.seen += batch


class Hooked(Slow):
    tick_every = 0.04

    def __init__(self) -> None:
        super().__init__()
        self.hooks = 0

    async def on_idle(self) -> None:
        self.hooks += 1
        await asyncio.sleep(0.01)

    on_tick = on_flush = on_idle


@pytest.mark.parametrize(
    "kind, step", [(Slow, 11), pytest.param(Hooked, 61, marks=pytest.mark.slow)]
)
def test_who_is_struck_there_comes_again(kind: type[Slow], step: int) -> None:
    """Two drain tasks, one handler: one of them stands at its lock nearly always."""
    points: list[int] = []
    for at in range(0, MOST_POINTS, step // 10 if IS_THOROUGH else step):
        if not ends_where_a_drain_task_is_struck(at, kind(), points):
            assert at > 5 * step
            return
    pytest.fail("it never came to an end")


def is_of_the_queue() -> bool:
    task = asyncio.current_task()
    return task is not None and task.get_name().startswith("q: ")


def ends_where_a_drain_task_is_struck(
    at: int, handler: Slow, points: list[int]
) -> bool:
    """Strike at this point of the queue's tasks; returns whether it was reached."""

    async def feed() -> None:
        await queue.produce_many(range(4))
        await asyncio.sleep(0.3)
        with contextlib.suppress(Exception):
            await queue.flush()

    config = BatchQueueConfig[int](
        consumer=handler,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=round_robin,
        max_batch=1,
    )
    with contextlib.closing(VirtualTimeLoop()) as loop:
        run = loop.run_until_complete
        queue = BatchQueue("q", config)
        run(queue.start())
        point = InterruptionFromTurn(
            at, strike, is_of_the_queue, loop, points, at_entries=False
        )
        with contextlib.suppress(Struck), point:
            run(feed())
        run(asyncio.sleep(1.0))
        run(queue.produce_many([10, 11, 12, 13]))
        # No longer than the handler takes for them: with its hooks, time is dear.
        run(asyncio.sleep(1.0))
        assert {10, 11, 12, 13} <= {*handler.seen}, f"it was struck at {point.where}"
        assert run(queue.shutdown(100.0)) == []
        check_settled(queue)
    return point.has_acted


@pytest.mark.asyncio(loop_factories=["virtual"])
async def test_an_on_flush_that_is_cancelled_before_its_first_step() -> None:
    """As a loop's end does with all tasks, and a test's clean-up with some."""
    handler = Hooked()
    async with BatchQueue("q", BatchQueueConfig[Any](consumer=handler)) as queue:
        await queue.produce(1)
        await asyncio.sleep(1.0)
        flushing = asyncio.create_task(queue.flush())
        cancelled = 0
        while not cancelled:
            await asyncio.sleep(0)
            for task in tasks_of(queue):
                if "on_flush" in task.get_name():
                    cancelled += task.cancel()
        with contextlib.suppress(BaseException):
            await flushing
        await queue.produce(2)
        await asyncio.sleep(1.0)
        assert handler.seen == [1, 2]
