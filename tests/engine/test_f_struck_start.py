"""F: a signal handler raises in `start`, and it is called again: as in a notebook."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    SharedDrainTasks,
    round_robin,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption, ctrl_c
from tests.support.oracle import check_settled
from tests.support.striking import noting

MOST_POINTS = 2_000
TWO: dict[str, Any] = {
    "partitions": PartitionPolicy.fixed(2),
    "drain_tasks": DrainTaskPolicy.fixed(2),
    "selector": round_robin,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rebalancing": {**TWO, "rebalancing": Rebalancing(interval=1.0)},
    "shared": {"drain_tasks": SharedDrainTasks("all", DrainTaskPolicy.fixed(1))},
    "threads": {**TWO, "threads": True},
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # It shares with nobody here; what it makes at its start is the same.
    pytest.mark.filterwarnings("ignore:drain_tasks=SharedDrainTasks.* has no effect"),
]


@pytest.fixture(autouse=True)
def no_finalizers() -> Iterator[None]:
    """Those of other queues would run in between."""
    gc.collect()
    gc.disable()
    yield
    gc.collect()
    gc.enable()


class Scene:
    """A queue that is struck as it starts."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.handled: list[int] = []
        config = BatchQueueConfig[int](consumer=self.handle, max_batch=2, **settings)
        self.queue = BatchQueue("q", config)

    async def handle(self, batch: list[int]) -> None:
        await asyncio.sleep(0.01)
        self.handled += batch

    async def start_again(self) -> None:
        await self.queue.start()
        for number in range(9):
            await self.queue.produce(number)
        await asyncio.sleep(5.0)
        assert sorted(self.handled) == list(range(9))
        names = [each.get_name() for each in asyncio.all_tasks()]
        own = [each for each in names if each.startswith("q: ")]
        assert len(own) == len({*own}), "two of one kind"
        await self.end()

    async def produce_and_end(self) -> None:
        if self.queue.is_running:
            await self.queue.produce_many(range(9))
        await self.end()

    async def end(self) -> None:
        left = await self.queue.shutdown(20.0)
        check_settled(self.queue)
        assert len(self.handled) + len(left) == self.queue.stats().accepted


def is_starting() -> bool:
    task = asyncio.current_task()
    return task is not None and task.get_name() == "starting"


def struck_at(point: int, settings: dict[str, Any], goes_on: str) -> bool:
    """Strike, and go on; returns whether it was struck."""
    with contextlib.closing(VirtualTimeLoop()) as loop:
        scene = Scene(settings)
        strike = Interruption(point, ctrl_c, is_starting, at_entries=True)
        starting = loop.create_task(scene.queue.start(), name="starting")
        with contextlib.suppress(KeyboardInterrupt), strike:
            loop.run_until_complete(starting)
        with noting(f"point {point}, {strike.where}"):
            loop.run_until_complete(getattr(scene, goes_on)())
    return strike.has_acted


@pytest.mark.parametrize("goes_on", ["start_again", "produce_and_end"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_it_drains_once_it_has_started(
    settings: dict[str, Any], goes_on: str, asyncio_errors: list[logging.LogRecord]
) -> None:
    for point in range(MOST_POINTS):
        if not struck_at(point, settings, goes_on):
            assert point > 50
            break
    gc.collect()
    # What was struck between a task's being made and being known.
    asyncio_errors.clear()


def test_one_that_runs_is_not_started_again() -> None:
    with contextlib.closing(VirtualTimeLoop()) as loop:
        scene = Scene({})
        loop.run_until_complete(scene.queue.start())
        before = asyncio.all_tasks(loop)
        loop.run_until_complete(scene.queue.start())
        assert asyncio.all_tasks(loop) == before
        loop.run_until_complete(scene.end())
