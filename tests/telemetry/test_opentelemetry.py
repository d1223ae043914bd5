"""`instrument`: what OpenTelemetry's SDK collects is what the queue says."""

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    BatchQueueManager,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async.telemetry import Instrumentation, _opentelemetry, instrument
from batchqueue_async.telemetry._metric_table import HISTOGRAMS, METRICS


class Collected:
    """What a reader has collected, by name."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"batchqueue.{name}"
            for point in metric.data.data_points
        ]

    def value(self, name: str, **labels: str) -> float | None:
        wanted: Mapping[str, Any] = {f"batchqueue.{k}": v for k, v in labels.items()}
        found = [
            each.value for each in self.points(name) if dict(each.attributes) == wanted
        ]
        return found[0] if found else None


async def fail(_: list[int]) -> None:
    message = "no"
    raise ValueError(message)


@pytest.mark.real_time
async def test_counts_are_observed() -> None:
    collected = Collected()
    config = BatchQueueConfig[int](consumer=fail, on_error=lambda *_: None)
    async with BatchQueue("q", config) as queue:
        with instrument(queue, meter_provider=collected.provider):
            await queue.produce_many(range(7))
            assert collected.value("items.waiting", queue="q") == 7
            await asyncio.sleep(0.1)
            settled = collected.value("items.settled", queue="q", outcome="failed")
            assert settled == 7
            assert collected.value("handler.batches", queue="q", handler="fail") == 1
            names = {metric.name for metric in METRICS}
            assert all(name.startswith("batchqueue.") for name in names)


@pytest.mark.real_time
async def test_batches_are_recorded_as_histograms() -> None:
    collected = Collected()

    async def consume(_: list[int]) -> None:
        await asyncio.sleep(0.025)  # uvloop counts milliseconds

    config = BatchQueueConfig[int](consumer=consume, measure_handlers=True)
    async with BatchQueueManager() as manager:
        early = await manager.create("early", config)
        instrumentation = instrument(manager, meter_provider=collected.provider)
        late = await manager.create("late", config)
        for queue in (early, late):
            await queue.produce_many(range(3))
            await queue.flush()
        for metric in HISTOGRAMS:
            points = collected.points(metric.name.removeprefix("batchqueue."))
            queues = {point.attributes["batchqueue.queue"] for point in points}
            assert queues == {"early", "late"}
            assert [point.count for point in points] == [1, 1]
        (size, _) = collected.points("handler.batch_size")
        assert size.sum == 3
        assert 4 in size.explicit_bounds
        (seconds, _) = collected.points("handler.duration")
        assert 0.02 <= seconds.sum < 30

        instrumentation.close()
        instrumentation.close()
        after = await manager.create("after", config)
        await after.produce(1)
        await after.flush()
        assert len(collected.points("handler.duration")) <= 2
        assert collected.points("items.accepted") == []


@pytest.mark.real_time
async def test_unmeasured_queues_record_nothing() -> None:
    collected = Collected()
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        with instrument(queue, meter_provider=collected.provider):
            await queue.produce(1)
            await queue.flush()
            assert collected.points("handler.duration") == []


@pytest.mark.real_time
def test_a_loop_thread_is_observed_from_the_reader_s_thread() -> None:
    collected = Collected()
    with (
        LoopThread() as loop_thread,
        instrument(loop_thread, meter_provider=collected.provider),
    ):
        config = BatchQueueConfig[int](consumer=lambda _: None)
        queue = loop_thread.open("q", config)
        queue.produce_many(range(5))
        queue.flush(30)
        settled = collected.value("items.settled", queue="q", outcome="handled")
        assert settled == 5
        assert collected.value("loop.blocked", queue="q") == 0


def test_a_loop_thread_that_does_not_run_is_refused() -> None:
    with pytest.raises(BatchQueueError, match="target must be a LoopThread that runs"):
        instrument(LoopThread())


async def test_without_an_sdk_it_costs_nothing_and_works() -> None:
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        with instrument(queue):
            await queue.produce(1)
            await queue.flush()
    assert queue.stats().handled == 1


@pytest.mark.real_time
async def test_queues_that_are_instrumented_one_by_one_are_all_observed() -> None:
    """An SDK never asks the callbacks of an instrument that is created again."""
    collected = Collected()
    config = BatchQueueConfig[int](consumer=lambda _: None)
    async with BatchQueue("one", config) as one, BatchQueue("two", config) as two:
        await one.produce_many(range(1))
        await two.produce_many(range(2))
        first = instrument(one, meter_provider=collected.provider)
        with instrument(two, meter_provider=collected.provider):
            assert collected.value("items.accepted", queue="one") == 1
            assert collected.value("items.accepted", queue="two") == 2
            first.close()
            assert collected.value("items.accepted", queue="one") is None
            assert collected.value("items.accepted", queue="two") == 2
        assert collected.points("items.accepted") == []
        both = [one, two]
        with (
            instrument(one, meter_provider=collected.provider),
            instrument(both, meter_provider=collected.provider),
        ):
            assert collected.value("items.accepted", queue="one") == 1, "counted once"
            assert collected.value("items.accepted", queue="two") == 2


@pytest.mark.real_time
async def test_a_queue_that_is_instrumented_twice_records_each_batch_once() -> None:
    collected = Collected()
    config = BatchQueueConfig[int](consumer=lambda _: None, measure_handlers=True)
    async with BatchQueue("one", config) as one, BatchQueue("two", config) as two:

        async def count() -> int:
            await one.produce(1)
            await one.flush()
            return sum(each.count for each in collected.points("handler.batch_size"))

        first = instrument(one, meter_provider=collected.provider)
        with instrument([one, two], meter_provider=collected.provider):
            assert await count() == 1
            first.close()
            assert await count() == 2, "the other one goes on"
        assert await count() == 2


BEFORE_AND_AFTER = """
import asyncio
from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async.telemetry import Instrumentation, _opentelemetry, instrument
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

async def main():
    config = BatchQueueConfig(consumer=lambda _: None)
    async with BatchQueue("one", config) as one, BatchQueue("two", config) as two:
        instrument(one)
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        instrument(two)
        (resource,) = reader.get_metrics_data().resource_metrics
        for metric in resource.scope_metrics[0].metrics:
            if metric.name == "batchqueue.capacity":
                points = metric.data.data_points
                print(*(each.attributes["batchqueue.queue"] for each in points))

asyncio.run(main())
"""


@pytest.mark.real_time
def test_the_global_provider_may_be_set_in_between() -> None:
    """What was asked of the API's stand-in is then asked of the real one."""
    command = [sys.executable, "-c", BEFORE_AND_AFTER]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "one two\n", ended.stderr


async def test_a_provider_is_not_kept() -> None:
    collected = Collected()
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        instrument(queue, meter_provider=collected.provider).close()
    collected.provider.shutdown()
    provider = weakref.ref(collected.provider)
    del collected
    gc.collect()
    assert provider() is None


@pytest.mark.real_time
async def test_each_collection_has_the_figures_of_its_moment() -> None:
    """A last one, at the end of a program, may come right after the one before."""
    collected = Collected()

    async def store(batch: list[int]) -> None:
        pass

    async with BatchQueue("q", BatchQueueConfig(consumer=store)) as queue:
        with instrument(queue, meter_provider=collected.provider):
            for number in range(1, 4):
                await queue.produce(number)
                await queue.flush()
                assert collected.value("items.accepted", queue="q") == number


@pytest.mark.real_time
async def test_nothing_is_kept_of_queues_that_a_manager_had() -> None:
    collected = Collected()

    async def store(batch: list[int]) -> None:
        pass

    async with BatchQueueManager() as manager:
        with instrument(manager, meter_provider=collected.provider):

            async def open_and_end() -> None:
                queue = await manager.create("q", BatchQueueConfig(consumer=store))
                await queue.produce(1)
                await manager.shutdown("q")

            def recorders() -> int:
                gc.collect()
                return sum(
                    type(each) is _opentelemetry._Recorder for each in gc.get_objects()
                )

            await open_and_end()
            before = recorders()
            for _ in range(20):
                await open_and_end()
            assert recorders() <= before


@pytest.mark.real_time
def test_a_queue_that_is_the_target_itself_is_read_after_its_end() -> None:
    """As in a job that ends before anybody has looked."""
    collected = Collected()

    async def store(batch: list[int]) -> None:
        pass

    loop_thread = LoopThread()
    loop_thread.start()
    queue = loop_thread.open("q", BatchQueueConfig(consumer=store))
    with instrument(queue, meter_provider=collected.provider):
        queue.produce_many(range(10))
        loop_thread.stop()
        assert collected.value("items.settled", queue="q", outcome="handled") == 10


@pytest.mark.real_time
@pytest.mark.parametrize("is_looked_at", [False, True])
async def test_a_collection_after_the_end_has_what_came_since_the_one_before(
    *, is_looked_at: bool
) -> None:
    """Or counters lack what a shutdown has handled, and all of a short job."""
    collected = Collected()

    async def store(batch: list[int]) -> None:
        pass

    def handled() -> float | None:
        return collected.value("items.settled", queue="q", outcome="handled")

    manager = BatchQueueManager()
    with instrument(manager, meter_provider=collected.provider):
        for before in range(0, 200, 10):
            queue = await manager.create("q", BatchQueueConfig(consumer=store))
            await queue.produce_many(range(10))
            if is_looked_at:
                assert handled() == before
            await manager.shutdown("q")
            del queue  # another one may have its number
            if is_looked_at:
                assert handled() == before + 10
                assert handled() is None
        if not is_looked_at:
            assert handled() == 10 * 20


@pytest.mark.real_time
async def test_each_metric_has_it_once_however_long_a_collection_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected = Collected()
    manager = BatchQueueManager()
    # Each metric looks anew.
    monkeypatch.setattr(_opentelemetry, "_FRESH", -1.0)

    async def store(batch: list[int]) -> None:
        pass

    with (
        instrument(manager, meter_provider=collected.provider),
        instrument([manager], meter_provider=collected.provider),
    ):
        for name in ("items.accepted", "partition.count"):
            queue = await manager.create("q", BatchQueueConfig(consumer=store))
            await queue.produce_many(range(10))
            await manager.shutdown("q")
            expected = {"items.accepted": 10, "partition.count": 1}[name]
            assert collected.value(name, queue="q") == expected


@pytest.mark.real_time
def test_so_has_one_after_a_loop_thread_s_end() -> None:
    collected = Collected()

    async def store(batch: list[int]) -> None:
        pass

    with LoopThread() as loop_thread:
        instrumentation = instrument(loop_thread, meter_provider=collected.provider)
        queue = loop_thread.open("q", BatchQueueConfig(consumer=store))
        queue.produce_many(range(10))

    assert collected.value("items.settled", queue="q", outcome="handled") == 10
    assert collected.value("items.settled", queue="q", outcome="handled") is None
    instrumentation.close()


@pytest.mark.real_time
def test_a_queue_that_is_made_while_its_manager_is_instrumented_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On its loop, meanwhile: its histograms were missing for good."""
    collected = Collected()
    config = BatchQueueConfig[int](consumer=lambda _: None, measure_handlers=True)
    listen, made = Instrumentation._listen, list[SyncBatchQueue[int]]()

    def slowly(mine: Instrumentation, queue: BatchQueue[Any]) -> None:
        listen(mine, queue)
        if queue.name == "early":
            made.append(loop_thread.open("meanwhile", config))

    monkeypatch.setattr(Instrumentation, "_listen", slowly)
    with LoopThread() as loop_thread:
        loop_thread.open("early", config)
        with instrument(loop_thread, meter_provider=collected.provider):
            made[0].produce(1)
            made[0].flush(30)
            (point,) = collected.points("handler.batch_size")
            assert point.attributes["batchqueue.queue"] == "meanwhile"
