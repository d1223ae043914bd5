"""PrometheusCollector: each figure is the queue's, whatever thread asks."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    LoopThread,
    PartialFailure,
    PartitionPolicy,
    Rebalancing,
    Retry,
    SyncBatchQueue,
    WhenFull,
)
from batchqueue_async._engine.queue_parts import Parts
from batchqueue_async._engine.stats import Overview, overview
from batchqueue_async.telemetry import PrometheusCollector, Target, _source


def registry_of(target: Target, patience: float = 0.5) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(target, patience=patience))
    return registry


def reader(target: Target) -> Callable[..., float | None]:
    registry = registry_of(target)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"batchqueue_{name}", labels)

    return value


class Flaky:
    """Fails its first batch in part."""

    def __init__(self) -> None:
        self.calls = 0

    async def consume(self, _: list[int]) -> None:
        self.calls += 1
        await asyncio.sleep(0.2)
        if self.calls == 1:
            raise PartialFailure([0, 1])


async def test_the_figures_are_those_of_stats() -> None:
    config = BatchQueueConfig[int](
        consumer=Flaky(), retry=Retry(attempts=2), measure_handlers=True, buffer_size=10
    )
    async with BatchQueue("orders", config) as queue:
        value = reader(queue)
        assert value("items_accepted_total", queue="orders") == 0
        await queue.produce_many(range(5))
        assert value("items_waiting", queue="orders") == 5
        assert value("partition_fullest", queue="orders") == 0.5
        assert value("capacity", queue="orders") == 10
        await asyncio.sleep(0.1)
        assert value("items_in_flight", queue="orders") == 5
        await queue.flush()
    handled = value("items_settled_total", queue="orders", outcome="handled")
    assert handled == 5
    assert value("items_retried_total", queue="orders") == 2
    assert value("items_accepted_total", queue="orders") == 5
    assert value("items_unaccounted", queue="orders") == 0
    handler = {"queue": "orders", "handler": "Flaky"}
    assert value("handler_batches_total", **handler) == 1
    assert value("handler_items_total", **handler) == 5
    assert value("handler_retried_total", **handler) == 2
    assert value("handler_cuts_total", reason="due", **handler) == 1
    assert value("drain_task_cycles_total", queue="orders", drain_task="0") == 2
    assert value("handler_batch_size_bucket", le="4.0", **handler) == 0
    assert value("handler_batch_size_bucket", le="8.0", **handler) == 1
    assert value("handler_batch_size_sum", **handler) == 5
    assert value("handler_duration_seconds_count", **handler) == 2
    seconds = value("handler_duration_seconds_sum", **handler)
    assert seconds is not None
    assert seconds == pytest.approx(0.4, rel=0.1)


async def test_refusals_and_displacements_are_told_apart() -> None:
    async def slow(_: list[int]) -> None:
        await asyncio.sleep(1)

    for when_full, refused, displaced in [
        (WhenFull.DROP_OLDEST, 0, 5),
        (WhenFull.DROP_NEWEST, 5, 0),
    ]:
        config = BatchQueueConfig(consumer=slow, buffer_size=5, when_full=when_full)
        async with BatchQueue("q", config) as queue:
            value = reader(queue)
            await queue.produce_many(range(10))
            await queue.shutdown()
            await queue.produce_many(range(3))
            dropped = value("items_settled_total", queue="q", outcome="dropped")
            assert dropped == displaced
            assert value("items_rejected_total", queue="q", reason="full") == refused
            assert value("items_rejected_total", queue="q", reason="closed") == 3


async def test_a_manager_has_all_its_queues_and_two_of_a_name_add_up() -> None:
    release = asyncio.Event()

    async def hold(_: list[int]) -> None:
        await release.wait()

    async with BatchQueueManager() as manager:
        value = reader(manager)
        for count in (1, 2):
            queue = await manager.create("a", BatchQueueConfig[int](consumer=hold))
            await queue.produce_many(range(count))
            if count == 1:
                await asyncio.sleep(0.1)
                ending = asyncio.create_task(manager.shutdown("a"))
                await asyncio.sleep(0)
        await manager.create("b")
        assert value("items_accepted_total", queue="a") == 3
        assert value("items_accepted_total", queue="b") == 0
        release.set()
        await ending


async def test_handlers_of_one_name_add_up() -> None:
    def handler() -> Callable[[Sequence[object]], None]:
        def consume(_: Sequence[object]) -> None:
            pass

        return consume

    async with BatchQueue[object]("q") as queue:
        name = ""
        for _ in range(3):
            queue.add_handler(int, handler())
            await queue.produce(1)
            await queue.flush()
            name = queue.stats().handlers[0].name
        queue.add_handler(str, handler())
        registry = registry_of(queue)
        text = generate_latest(registry).decode()
    assert text.count(f'handler_batches_total{{handler="{name}"') == 1


async def test_rebalancing_shows() -> None:
    config = BatchQueueConfig[int](
        consumer=lambda _: None,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(4),
        rebalancing=Rebalancing(interval=1.0),
    )
    async with BatchQueue("q", config) as queue:
        value = reader(queue)
        assert value("rebalancing_rounds_total", queue="q") is None
        await queue.produce_many(range(10))
        await asyncio.sleep(3.5)
        assert value("rebalancing_rounds_total", queue="q") == 3


@pytest.mark.real_time
async def test_another_thread_is_answered_by_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_on: list[threading.Thread] = []

    def noting(parts: Parts, **wanted: int) -> Overview:
        looked_on.append(threading.current_thread())
        return overview(parts, **wanted)

    monkeypatch.setattr(_source, "overview", noting)
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        value = reader(queue)
        assert await asyncio.to_thread(value, "loop_blocked", queue="q") == 0
    assert looked_on == [threading.current_thread()]


@pytest.mark.real_time
def test_a_blocked_loop_is_told_and_does_not_block_the_scrape() -> None:
    release = threading.Event()
    inside = threading.Event()

    def block(_: list[int]) -> None:
        inside.set()
        release.wait(60)

    with LoopThread() as loop_thread:
        queue = loop_thread.open("q", BatchQueueConfig[int](consumer=block))
        value = reader(loop_thread)
        assert value("loop_blocked", queue="q") == 0
        queue.produce(1)
        assert inside.wait(30)
        assert value("loop_blocked", queue="q") == 1
        assert value("items_in_flight", queue="q") == 1
        release.set()
        queue.flush(30)
        assert value("loop_blocked", queue="q") == 0
    # It has nothing to show any more, and does not hang.
    assert value("loop_blocked", queue="q") is None


@pytest.mark.real_time
async def test_each_kind_of_target_will_do() -> None:
    async with BatchQueueManager() as manager:
        queue = await manager.create("q")
        bridge = SyncBatchQueue(queue)
        targets: list[Target] = [queue, manager, bridge, [queue], [bridge]]
        for target in targets:
            assert reader(target)("items_waiting", queue="q") == 0


def test_a_queue_that_has_not_started_or_whose_loop_is_closed_can_be_read() -> None:
    queue = BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None))
    value = reader(queue)
    assert value("items_accepted_total", queue="q") == 0

    async def use() -> None:
        async with queue:
            await queue.produce(1)

    asyncio.run(use())
    began = time.monotonic()
    assert value("items_accepted_total", queue="q") == 1
    assert value("loop_blocked", queue="q") == 1
    assert time.monotonic() - began < 30


def test_registering_looks_at_no_queue() -> None:
    queue = BatchQueue[int]("q")
    families = list(PrometheusCollector(queue).describe())
    assert families
    assert not any(family.samples for family in families)


def test_another_target_is_refused() -> None:
    with pytest.raises(TypeError, match="LoopThread, got dict"):
        PrometheusCollector({})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="LoopThread, got int"):
        PrometheusCollector([BatchQueue[int]("q"), 5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="LoopThread, got str"):
        PrometheusCollector("q")  # type: ignore[arg-type]
