"""A forked child leaves its parent's queues to that, in whatever looks at them."""

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from batchqueue_async import BatchQueueConfig, BatchQueueManager, LoopThread
from batchqueue_async.telemetry import PrometheusCollector, Watched, instrument
from batchqueue_async.telemetry._feed import Feed

ACCEPTED = "batchqueue_items_accepted_total"
CONFIG = BatchQueueConfig[int](consumer=lambda _: None)


def in_child(look: Callable[[], object]) -> object:
    """Return what `look` returns in a child that is forked now."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(look()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        found: object = json.loads(told.read())
    os.waitpid(child, 0)
    return found


@pytest.mark.real_time
def test_a_child_tells_of_its_own_queues_alone() -> None:
    """Summed over processes, the parent's items were counted once for each child."""
    reader, registry = InMemoryMetricReader(), CollectorRegistry()
    with LoopThread() as loop_thread:
        queue = loop_thread.open("q", CONFIG)
        manager = BatchQueueManager()
        targets: list[Watched] = [loop_thread, manager]
        registry.register(PrometheusCollector(targets))
        instrument(targets, meter_provider=MeterProvider([reader]))
        feed = Feed(targets)
        queue.produce_many(range(10))
        queue.flush(30)

        def look() -> list[float | None]:
            return [
                registry.get_sample_value(ACCEPTED, {"queue": name})
                for name in ("q", "child's")
            ]

        async def work() -> list[float | None]:
            async with manager:
                childs = await manager.create("child's", CONFIG)
                await childs.produce(1)
                return look()

        assert look() == [10, None]
        assert in_child(look) == [None, None]
        assert in_child(lambda: asyncio.run(work())) == [None, 1]
        assert in_child(lambda: reader.get_metrics_data() is None)
        assert in_child(lambda: feed.sample(now=True)["queue_count"]) == 0
        assert look() == [10, None]


@pytest.mark.real_time
def test_so_it_does_with_the_last_figures_of_queues_that_had_ended() -> None:
    reader = InMemoryMetricReader()
    with LoopThread() as loop_thread:
        instrument(loop_thread, meter_provider=MeterProvider([reader]))
        queue = loop_thread.open("q", CONFIG)
        queue.produce(1)
        queue.shutdown()
        assert in_child(lambda: reader.get_metrics_data() is None)
        assert reader.get_metrics_data() is not None


@pytest.mark.real_time
def test_a_queue_that_was_forked_in_the_middle_of_a_call_holds_no_child_up() -> None:
    """Its lock may be taken there, by a thread that is not."""
    with LoopThread() as loop_thread:
        queue = loop_thread.open("q", CONFIG)
        registry = CollectorRegistry()
        registry.register(PrometheusCollector(loop_thread))
        guard = queue.queue._parts.partitions[0].guard
        with guard:
            value = partial(registry.get_sample_value, ACCEPTED, {"queue": "q"})
            assert in_child(value) is None
