"""Type-checks the names of `batchqueue_async.telemetry` as a user's program would."""

from pathlib import Path
from typing import assert_type

from opentelemetry.metrics import get_meter_provider
from opentelemetry.trace import get_tracer_provider
from prometheus_client import REGISTRY

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    BatchQueueStats,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async.telemetry import (
    Instrumentation,
    OpenView,
    PrometheusCollector,
    QueuesElsewhere,
    Target,
    Watched,
    instrument,
    open_view,
    traceparent,
    web_view,
    with_links,
)


class Order:
    origin: str | None


class Workers:
    def queue_stats(self) -> list[BatchQueueStats]:
        return []


async def save(batch: list[Order]) -> None: ...


def targets(
    queue: BatchQueue[Order],
    bridge: SyncBatchQueue[Order],
    manager: BatchQueueManager,
    loop_thread: LoopThread,
) -> None:
    workers: QueuesElsewhere = Workers()
    several: list[Watched] = [loop_thread, workers, bridge]
    all_of_them: list[Target] = [queue, bridge, manager, loop_thread, workers, several]
    all_of_them.append([bridge])
    for target in all_of_them:
        REGISTRY.register(PrometheusCollector(target, patience=0.1))
        with instrument(target) as instrumentation:
            assert_type(instrumentation, Instrumentation)
    provider = get_meter_provider()
    instrument(queue, meter_provider=provider, patience=1.0).close()
    assert_type(queue.stats().unaccounted, int)
    assert_type(manager.queues[0].name, str)
    assert_type(manager.stats()["orders"].accepted, int)


def views(loop_thread: LoopThread) -> None:
    with open_view(loop_thread, "queues.sock", interval=2.0, patience=0.1) as view:
        assert_type(view, OpenView)
        assert_type(view.path, Path)
    web_view(loop_thread, allowed_hosts=None, interval=2.0, patience=0.1)
    web_view(loop_thread, allowed_hosts=["shop.example"])


def links() -> None:
    assert_type(traceparent(), str | None)
    linked = with_links(
        save, lambda order: order.origin, tracer_provider=get_tracer_provider()
    )
    BatchQueueConfig[Order](consumer=linked, audit=True)
