"""`SharedDrainTasks`: named by several queues of one manager, made and ended once."""

import asyncio
import gc
import logging
import weakref
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    SharedDrainTasks,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import tasks_of
from tests.engine.sharing import Together, config, shared
from tests.engine.until import turns
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


def capacities(manager: BatchQueueManager) -> dict[str, Any]:
    return manager._shared_permits._shared


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.name == "batchqueue_async" and each.levelno == logging.WARNING
    ]


class TestLife:
    async def test_it_lives_from_the_first_queue_to_the_last(self) -> None:
        async with BatchQueueManager() as manager:
            assert not capacities(manager)
            for name in ("a", "b"):
                await manager.create(name, config(2))
            assert list(capacities(manager)) == ["io"]
            capacity = weakref.ref(capacities(manager)["io"][1])
            await manager.shutdown("a")
            assert list(capacities(manager)) == ["io"]
            await manager.shutdown("b")
            assert not capacities(manager)
            await manager.create("c", config(5))
            assert capacities(manager)["io"][0] == DrainTaskPolicy.fixed(5)
        gc.collect()
        assert capacity() is None

    async def test_shutting_one_queue_down_often_counts_once(self) -> None:
        async with BatchQueueManager() as manager:
            one = await manager.create("a", config(2))
            await manager.create("b", config(2))
            await asyncio.gather(one.shutdown(), one.shutdown(), manager.shutdown("a"))
            await one.shutdown()
            assert list(capacities(manager)) == ["io"]
        assert not capacities(manager)

    async def test_names_are_apart(self) -> None:
        together = Together()
        gate = asyncio.Event()
        async with BatchQueueManager() as manager:
            for name in ("a", "b"):
                handler = together.handler(name, gate=gate)
                queue = await manager.create(name, config(shared(1, name), handler))
                assert await queue.produce(1)
            await turns()
            assert together.inside == 2
            gate.set()

    async def test_two_managers_share_nothing(self) -> None:
        together = Together()
        gate = asyncio.Event()
        async with BatchQueueManager() as one, BatchQueueManager() as two:
            for manager in (one, two):
                queue = await manager.create(
                    "q", config(1, together.handler("h", gate=gate))
                )
                assert await queue.produce(1)
            await turns()
            assert together.inside == 2
            gate.set()

    async def test_a_queue_without_a_manager_has_it_for_itself(self) -> None:
        handlers = [RecordingHandler[int](gate=asyncio.Event()) for _ in range(2)]
        one, two = (BatchQueue("q", config(1, each)) for each in handlers)
        says = r"^drain_tasks=SharedDrainTasks\(.* no effect in a queue that no manager"
        with pytest.warns(UserWarning, match=says) as caught:
            await asyncio.gather(one.start(), two.start())
        assert len(caught) == 2
        async with one, two:
            assert await one.produce(1)
            assert await two.produce(1)
            await turns()
            assert [each.running for each in handlers] == [1, 1]
            for each in handlers:
                assert each.gate is not None
                each.gate.set()
        check_settled(one)

    async def test_each_queue_has_one_drain_task_and_partitions_for_one(self) -> None:
        settings = config(8, partitions=PartitionPolicy.per_drain_task(3))
        async with BatchQueueManager() as manager:
            queue = await manager.create("q", settings)
            await turns()
            assert [each.get_name() for each in tasks_of(queue)] == ["q: drain task 0"]
            stats = queue.stats()
            assert len(stats.drain_tasks) == 1
            assert [each.owner for each in stats.partitions] == [0, 0, 0]


class TestTwoPolicies:
    async def test_the_first_wins_and_one_warning_tells(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        together = Together()
        async with BatchQueueManager() as manager:
            for number, n in enumerate((2, 3, 4, 2, 3)):
                handler = together.handler("h", delay=0.01)
                queue = await manager.create(f"q{number}", config(n, handler))
                assert await queue.produce(1)
        (warning,) = warnings_in(caplog)
        assert "'io'" in warning
        assert "DrainTaskPolicy.fixed(2)" in warning
        assert "DrainTaskPolicy.fixed(3)" in warning
        assert together.most == 2

    async def test_the_same_policy_is_no_news(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        policy = DrainTaskPolicy.cpu_cores(1)
        async with BatchQueueManager() as manager:
            for name in ("a", "b"):
                await manager.create(name, config(SharedDrainTasks("io", policy)))
        assert warnings_in(caplog) == []
