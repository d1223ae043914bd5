"""What is told of other processes' queues stands beside those of this one."""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from batchqueue_async._engine.stats import BatchQueueStats
from batchqueue_async.telemetry import PrometheusCollector, instrument
from batchqueue_async.telemetry._feed import Feed
from batchqueue_async.telemetry._top import Picture


class Workers:
    """Tells of a queue of which only what has ended is known."""

    def __init__(self) -> None:
        self.handled = 7

    def queue_stats(self) -> Sequence[BatchQueueStats]:
        now = ("waiting", "in_flight", "capacity", "waiting_producers", "oldest_age")
        never = ("rejected", "rejected_closed", "failed", "dropped", "unhandled")
        zeros: dict[str, Any] = dict.fromkeys((*now, *never, "returned"), 0)
        return [
            BatchQueueStats(
                name="far away",
                accepted=self.handled,
                handled=self.handled,
                partitions=(),
                drain_tasks=(),
                last_round=None,
                **zeros,
            )
        ]


def consumed() -> BatchQueueConfig[int]:
    return BatchQueueConfig[int](consumer=lambda _: None, measure_handlers=True)


async def test_a_view_shows_both_with_rates_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    workers = Workers()
    async with BatchQueue("here", consumed()) as queue:
        feed = Feed([queue, workers])
        feed.sample()
        workers.handled += 20
        now += 2.0
        sample = feed.sample()
    shown = {each["name"]: each for each in sample["queues"]}
    assert shown.keys() == {"here", "far away"}
    assert shown["far away"]["rates"]["handled"] == 10
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(Picture(sample))
    assert "far away" in console.export_text()


async def test_metrics_leave_out_what_is_not_known() -> None:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(Workers()))
    page = generate_latest(registry).decode()
    settled = 'batchqueue_items_settled_total{outcome="handled",queue="far away"} 7.0'
    assert settled in page
    assert 'batchqueue_partition_fullest{queue="far away"}' not in page


async def test_a_queue_that_is_watched_twice_counts_once() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    async with BatchQueueManager() as manager:
        queue = await manager.create("here", consumed())
        with instrument([manager, queue, Workers()], meter_provider=provider):
            await queue.produce_many(range(5))
            await queue.flush()
            collected = reader.get_metrics_data()
    assert collected is not None
    metrics = collected.resource_metrics[0].scope_metrics[0].metrics
    points: dict[str, list[Any]]
    points = {each.name: list(each.data.data_points) for each in metrics}
    accepted = [point.value for point in points["batchqueue.items.accepted"]]
    assert accepted == [5, 7]
    (size,) = points["batchqueue.handler.batch_size"]
    assert size.sum == 5


def test_what_is_given_twice_is_told_once() -> None:
    class Waiting(Workers):
        def queue_stats(self) -> Sequence[BatchQueueStats]:
            return [replace(each, waiting=4) for each in super().queue_stats()]

    waiting = Waiting()
    registry = CollectorRegistry()
    registry.register(PrometheusCollector([waiting, waiting]))
    page = generate_latest(registry).decode()
    assert 'batchqueue_items_waiting{queue="far away"} 4.0' in page
    assert len(Feed([waiting, waiting]).sample()["queues"]) == 1
