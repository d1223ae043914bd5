"""Counters of a name never fall, whatever queues and handlers had it."""

import asyncio
import gc
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    NumberDataPoint,
)
from prometheus_client import CollectorRegistry

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager, LoopThread
from batchqueue_async._engine.stats import Overview
from batchqueue_async.telemetry import PrometheusCollector, _source, instrument
from batchqueue_async.telemetry import _growing_counts as growing
from batchqueue_async.telemetry._metric_table import METRICS
from batchqueue_async.telemetry._source import Identity, Reading
from tests.telemetry.test_queues_elsewhere import Workers


class Deltas:
    """What an exporter that is sent deltas adds up, as that of many vendors is."""

    def __init__(self) -> None:
        wanted: dict[type, AggregationTemporality] = {
            ObservableCounter: AggregationTemporality.DELTA
        }
        self._reader = InMemoryMetricReader(wanted)
        self.provider = MeterProvider([self._reader])
        self.sums: dict[tuple[object, ...], float] = {}

    def collect(self) -> None:
        data = self._reader.get_metrics_data()
        for resource in [] if data is None else data.resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                if not getattr(metric.data, "is_monotonic", False):
                    continue
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    assert point.value >= 0, (metric.name, point)
                    key = (metric.name, *(point.attributes or {}).values())
                    self.sums[key] = self.sums.get(key, 0) + point.value


def store(_: Sequence[object]) -> None:
    pass


CONFIG = BatchQueueConfig[Any](consumer=store, measure_handlers=True)


@pytest.mark.real_time
async def test_deltas_add_up_over_queues_of_one_name() -> None:
    """A younger queue of fewer items made them negative, and the sum too small."""
    deltas, manager, total = Deltas(), BatchQueueManager(), 0
    with instrument(manager, meter_provider=deltas.provider):
        for count in (100, 5, 7):
            queue = await manager.create("q", CONFIG)
            await queue.produce_many(range(count))
            total += count
            await queue.flush()
            deltas.collect()
            await manager.shutdown("q")
        deltas.collect()
    assert deltas.sums["batchqueue.items.accepted", "q"] == total
    assert deltas.sums["batchqueue.items.settled", "q", "handled"] == total
    assert deltas.sums["batchqueue.handler.items", "q", "store"] == total


@pytest.mark.real_time
async def test_a_queue_that_is_instrumented_again_counts_on() -> None:
    deltas = Deltas()
    async with BatchQueue("q", CONFIG) as one, BatchQueue("q", CONFIG) as two:
        for queue in (one, two, one, two):
            with instrument(queue, meter_provider=deltas.provider):
                await queue.produce_many(range(10))
                await queue.flush()
                deltas.collect()
    assert deltas.sums["batchqueue.items.accepted", "q"] == 40


@pytest.mark.real_time
def test_where_one_of_two_queues_of_a_name_ends_the_counters_stay() -> None:
    """Prometheus took that for a restart, and counted the other's items again."""
    names = {"queue": "q", "handler": "store"}
    registry = CollectorRegistry()
    with LoopThread() as one, LoopThread() as two:
        registry.register(PrometheusCollector([one, two]))
        for loop_thread, count in ((one, 1000), (two, 500)):
            queue = loop_thread.open("q", CONFIG)
            queue.produce_many(range(count))
            queue.flush(30)
        value = registry.get_sample_value
        assert value("batchqueue_items_accepted_total", {"queue": "q"}) == 1500
        assert value("batchqueue_handler_batch_size_sum", names) == 1500
        batches = value("batchqueue_handler_batch_size_count", names)
        one.stop()
        assert value("batchqueue_items_accepted_total", {"queue": "q"}) == 1500
        assert value("batchqueue_capacity", {"queue": "q"}) == 10_000, "that of one"
        assert value("batchqueue_handler_batch_size_sum", names) == 1500
        assert value("batchqueue_handler_batch_size_count", names) == batches


@pytest.mark.real_time
async def test_a_handler_in_another_s_place_counts_on() -> None:
    registry = CollectorRegistry()
    async with BatchQueue[object]("q", BatchQueueConfig(measure_handlers=True)) as q:
        registry.register(PrometheusCollector(q))
        names = {"queue": "q", "handler": "store of int"}
        for count in (10, 3):
            q.add_handler(int, store)
            await q.produce_many(range(count))
            await q.flush()
            found = [
                registry.get_sample_value(f"batchqueue_handler_{name}", names)
                for name in ("items_total", "batch_size_sum")
            ]
            q.remove_handler(int)
            await q.flush()
    assert found == [13, 13]


def test_a_look_at_numbers_that_change_lowers_none() -> None:
    """One past a loop that doesn't answer may see a sum that is too large."""
    counts, identity = growing.GrowingCounts(), Identity()
    accepted = next(each for each in METRICS if each.name.endswith("items.accepted"))
    told: list[float] = []
    for seen in (10, 12, 11, 16):
        (stats,) = Workers().queue_stats()
        overview = Overview(replace(stats, accepted=seen), [], 0)
        reading = Reading(identity, overview, loop_responds=seen != 12)
        told += counts.values_of(accepted, [reading]).values()
    assert told == [10, 12, 12, 16]


def test_a_queue_elsewhere_may_begin_again() -> None:
    deltas, workers = Deltas(), Workers()
    with instrument(workers, meter_provider=deltas.provider):
        for workers.handled in (7, 9, 2, 3):
            deltas.collect()
    assert deltas.sums["batchqueue.items.accepted", "far away"] == 12


@pytest.mark.real_time
async def test_names_that_never_come_again_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growing, "_MOST_NAMES", 10)
    deltas, manager = Deltas(), BatchQueueManager()
    with instrument(manager, meter_provider=deltas.provider) as instrumentation:
        for number in range(50):
            queue = await manager.create(f"job {number}", CONFIG)
            await queue.produce(number)
            await manager.shutdown(queue.name)
            del queue
            deltas.collect()
        deltas.collect()
        gc.collect()
        counts = instrumentation._observed._counts
        assert len(counts._sums) == 10
        assert len(counts._seen) <= 1
        assert not counts._seen_elsewhere, "which would hold what nobody looks at"


def test_names_elsewhere_that_never_come_again_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growing, "_MOST_NAMES", 10)
    counts, workers = growing.GrowingCounts(), Workers()
    for number in range(50):
        (stats,) = workers.queue_stats()
        overview = Overview(replace(stats, name=f"job {number}"), [], 0)
        reading = Reading((workers, number), overview, loop_responds=True)
        counts.add(reading)
        counts.forget([reading])
    assert len(counts._seen_elsewhere) == 11, "ten, and the one that is here"


@pytest.mark.real_time
async def test_names_of_handlers_that_are_gone_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue that lives for long may have thousands of them a day."""
    monkeypatch.setattr(growing, "_MOST_NAMES", 10)
    registry = CollectorRegistry()
    async with BatchQueue[object]("q", BatchQueueConfig(measure_handlers=True)) as q:
        collector = PrometheusCollector(q)
        registry.register(collector)
        q.add_handler(str, store)
        for number in range(50):
            kind = type(f"Tenant{number}", (), {})
            q.add_handler(kind, store)
            await q.produce_many([kind(), "always here"])
            await q.flush()
            list(collector.collect())
            q.remove_handler(kind)
            await q.flush()
        counts = collector._counts
        for known in (*counts._sums.values(), *counts._seen.values()):
            names = {labels[1] for name, labels in known if ".handler." in name}
            assert len(names) == 12, "ten, the last one, and the one that is here"
        of = {"queue": "q", "handler": "store of str"}
        found = registry.get_sample_value("batchqueue_handler_items_total", of)
    assert found == 50


@pytest.mark.real_time
async def test_all_queues_count_that_end_between_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of more than a thousand the oldest were forgotten, and all their items."""
    monkeypatch.setattr(_source, "_MOST_ENDED", 10)
    deltas, manager = Deltas(), BatchQueueManager()
    with (
        instrument(manager, meter_provider=deltas.provider),
        instrument([manager], meter_provider=deltas.provider),
    ):
        for _ in range(50):
            queue = await manager.create("q", CONFIG)
            await queue.produce_many(range(10))
            await manager.shutdown("q")
            del queue
        deltas.collect()
    assert deltas.sums["batchqueue.items.settled", "q", "handled"] == 500
    assert deltas.sums["batchqueue.handler.items", "q", "store"] == 500


@pytest.mark.real_time
def test_readers_at_once_count_nothing_twice() -> None:
    """A queue may end, and be forgotten by one of them, while another is at it."""
    registry, deltas = CollectorRegistry(), Deltas()
    rng = random.Random(5)
    total = 0

    async def look_on(ended: asyncio.Event) -> None:
        last = 0.0
        while not ended.is_set():
            await asyncio.to_thread(deltas.collect)
            name = "batchqueue_items_accepted_total"
            seen = await asyncio.to_thread(
                registry.get_sample_value, name, {"queue": "q"}
            )
            assert seen is None or last <= seen <= total
            last = last if seen is None else seen

    async def main() -> None:
        nonlocal total
        ended, manager = asyncio.Event(), BatchQueueManager()
        registry.register(PrometheusCollector(manager))
        with instrument(manager, meter_provider=deltas.provider):
            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(look_on(ended))
                for _ in range(100):
                    queue = await manager.create("q", CONFIG)
                    count = rng.randrange(100)
                    total += count
                    await queue.produce_many(range(count))
                    await asyncio.sleep(0.002)
                    await manager.shutdown("q")
                    del queue
                ended.set()
            deltas.collect()

    asyncio.run(main())
    assert deltas.sums["batchqueue.items.accepted", "q"] == total


@pytest.mark.real_time
def test_a_child_that_is_forked_during_a_look_can_look() -> None:
    counts = growing.GrowingCounts()
    with counts.lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if counts.lock.acquire(timeout=1.0) else 1)
    assert os.waitpid(child, 0)[1] == 0
