"""Every public signature, as users write it; checked by mypy, never run.

`assert_type` pins what is inferred; `type: ignore` with a code pins what is refused,
since unused ignores are errors.
"""

import signal
from collections.abc import Awaitable, Sequence
from typing import Any, assert_type

from batchqueue_async import (
    BatchFunction,
    BatchHandler,
    BatchLimit,
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    BatchQueueManager,
    BatchQueueStats,
    ConfigConflict,
    CostBalancer,
    Cuts,
    DeliveryError,
    DrainBalancer,
    DrainTaskLimit,
    DrainTaskPolicy,
    DrainTaskStats,
    DuplicateQueue,
    ErrorHandler,
    Failure,
    HandlerLike,
    HandlerStats,
    HandlesClose,
    HandlesFlush,
    HandlesIdle,
    HandlesOpen,
    HandlesTick,
    Histogram,
    IdleBackoff,
    ItemTooLarge,
    LoopThread,
    Merging,
    Offer,
    PartialFailure,
    PartitionPolicy,
    PartitionSelector,
    PartitionStats,
    ProcessDied,
    Rebalancing,
    RebalancingRound,
    Retry,
    RetryAfter,
    RetryHook,
    SharedDrainTasks,
    SyncBatchHandler,
    SyncBatchQueue,
    ThroughputBalancer,
    WhenFull,
    WouldDeadlock,
    by_key,
    by_type,
    close_process_queues,
    drain_on_signals,
    fair_by,
    in_process,
    in_thread,
    process_queue,
    round_robin,
)


class Metric:
    value: float = 0.0
    name: str = ""


class Latency(Metric): ...


def use(*_: object) -> None: ...


# --- handlers of all forms


class AsyncHandler:
    async def consume(self, batch: list[Metric]) -> None: ...

    async def on_idle(self) -> None: ...


class TickingHandler:
    tick_every = 0.5

    async def consume(self, batch: Sequence[Metric]) -> int:
        return len(batch)

    async def on_open(self) -> bool:
        return True

    def on_tick(self) -> int:
        return 1

    def on_flush(self) -> None: ...


class SyncHandler:
    def consume(self, batch: list[Metric]) -> None: ...

    def on_close(self) -> None: ...


class CallableHandler:
    async def __call__(self, batch: list[Metric]) -> None: ...


def sync_function(batch: list[Metric]) -> None: ...


async def async_function(batch: list[Metric]) -> None: ...


async def takes_a_sequence(batch: Sequence[Metric]) -> None: ...


def returns_a_number(batch: list[Metric]) -> int:
    return len(batch)


async def async_returns_a_number(batch: list[Metric]) -> int:
    return len(batch)


async def takes_strings(batch: list[str]) -> None: ...


def handlers(queue: BatchQueue[Metric]) -> None:
    queue.add_handler(Metric, AsyncHandler())
    queue.add_handler(Metric, SyncHandler())
    queue.add_handler(Metric, CallableHandler(), weight=0.05)
    queue.add_handler(Metric, sync_function, 2)
    queue.add_handler(Metric, async_function)
    queue.add_handler(Metric, takes_a_sequence)
    queue.add_handler(Metric, lambda batch: use(batch[0].value))
    queue.add_handler(Metric, returns_a_number)
    queue.add_handler(Metric, async_returns_a_number)
    queue.add_handler(Latency, takes_a_sequence)
    queue.add_handler(Latency, TickingHandler())
    queue.add_handler(Metric, in_thread(returns_a_number))
    queue.add_handler(Metric, in_thread(SyncHandler()))
    queue.add_handler(Latency, in_thread(takes_a_sequence_blocking))
    assert_type(queue.remove_handler(Metric), bool)

    queue.add_handler(
        Metric,
        async_function,
        max_batch=100,
        linger=0.5,
        retry=Retry(attempts=2),
        on_error=async_on_error,
        handler_timeout=5,
        max_batch_bytes=1_000_000,
    )

    queue.add_handler(Metric, takes_strings)  # type: ignore[arg-type]
    queue.add_handler("Metric", async_function)  # type: ignore[arg-type]
    queue.add_handler(Metric, 42)  # type: ignore[arg-type]
    queue.add_handler(Metric, async_function, weight="1")  # type: ignore[arg-type]


def takes_a_sequence_blocking(batch: Sequence[Metric]) -> None: ...


def protocols() -> None:
    handler: BatchHandler[Metric] = AsyncHandler()
    sync_handler: SyncBatchHandler[Metric] = SyncHandler()
    function: BatchFunction[Latency] = takes_a_sequence
    anything: HandlerLike[Metric] = returns_a_number
    anything = sync_handler
    idle: HandlesIdle = AsyncHandler()
    opened: HandlesOpen = TickingHandler()
    ticks: HandlesTick = TickingHandler()
    flushed: HandlesFlush = TickingHandler()
    closed: HandlesClose = SyncHandler()
    use(function, anything, idle, opened, ticks, flushed, closed)
    wrong: HandlesTick = AsyncHandler()  # type: ignore[assignment]
    use(wrong)
    assert_type(in_thread(sync_function), BatchHandler[Metric])
    assert_type(in_thread(sync_function, concurrency=4), BatchHandler[Metric])
    assert_type(in_process(sync_function), BatchHandler[Metric])
    assert_type(in_process(SyncHandler(), concurrency=2), BatchHandler[Metric])
    on_error: ErrorHandler[Metric] = sync_on_error
    on_error = async_on_error
    on_retry: RetryHook[Metric] = sync_on_retry
    on_retry = async_on_retry
    selector: PartitionSelector[Metric] = by_type
    selector = round_robin
    selector = by_key(key_of)
    selector = fair_by(key_of)
    selector = fair_by(key_of, weight=weight_of, quantum=10)
    selector = own_selector
    balancer: DrainBalancer = ThroughputBalancer(skip_below=1.2)
    balancer = CostBalancer()
    use(handler, on_error, on_retry, selector, balancer)


async def asks(number: int) -> str:
    return str(number)


def sync_on_error(batch: list[Metric], error: BaseException) -> None: ...


async def async_on_error(batch: list[Metric], error: BaseException) -> None: ...


def sync_on_retry(
    batch: list[Metric], error: BaseException, attempt: int, wait: float
) -> None: ...


async def async_on_retry(
    batch: list[Metric], error: BaseException, attempt: int, wait: float
) -> None: ...


def key_of(item: Metric) -> str:
    return item.name


def weight_of(name: str) -> int:
    return len(name)


def unhashable_of(item: Metric) -> list[str]:
    return [item.name]


def own_selector(item: Metric, partitions: int) -> int:
    return len(item.name) % partitions


# --- policies and config


def policies() -> None:
    assert_type(DrainTaskPolicy.fixed(2), DrainTaskPolicy)
    assert_type(DrainTaskPolicy.adaptive(1, 8), DrainTaskPolicy)
    assert_type(DrainTaskPolicy.adaptive(1, 8).least, int | None)
    assert_type(DrainTaskPolicy.cpu_cores(0.5), DrainTaskPolicy)
    assert_type(DrainTaskPolicy.cpu_cores_with_base(1, 0.25), DrainTaskPolicy)
    assert_type(DrainTaskPolicy.fixed(2).resolve(), int)
    assert_type(PartitionPolicy.fixed(2), PartitionPolicy)
    assert_type(PartitionPolicy.per_drain_task(2), PartitionPolicy)
    assert_type(PartitionPolicy.adaptive(), PartitionPolicy)
    assert_type(PartitionPolicy.adaptive(multiplier=25), PartitionPolicy)
    assert_type(PartitionPolicy.adaptive().resolve(8, 0.5), int)
    assert_type(IdleBackoff(shortest=0.001, longest=0.05).delay(3), float)
    plan = ThroughputBalancer().assign([1, 2.0], [0, 1], 2)
    assert_type(plan, list[int] | None)


def size_of(metric: Metric) -> int:
    return 1


def configs() -> None:
    assert_type(BatchQueueConfig(), BatchQueueConfig[Any])
    config = BatchQueueConfig[Metric](
        drain_tasks=SharedDrainTasks("io", DrainTaskPolicy.fixed(2)),
        partitions=PartitionPolicy.adaptive(),
        buffer_size=10_000,
        when_full=WhenFull.DROP_OLDEST,
        selector=by_type,
        max_batch=100,
        size_of=size_of,
        max_batch_bytes=1e6,
        buffer_bytes=64 * 2**20,
        linger=0.5,
        idle=IdleBackoff(),
        rebalancing=Rebalancing(balancer=CostBalancer(), interval=10.0),
        retry=Retry(
            attempts=3,
            wait_initial=0.1,
            wait_max=5,
            deadline=None,
            retry_on=(OSError,),
            split=True,
            split_on=(KeyError,),
        ),
        handler_timeout=30,
        slow_handler=None,
        on_error=async_on_error,
        on_retry=async_on_retry,
        measure_handlers=True,
    )
    assert_type(config, BatchQueueConfig[Metric])
    assert_type(BatchQueueConfig(consumer=AsyncHandler()), BatchQueueConfig[Metric])
    assert_type(BatchQueueConfig(consumer=async_function), BatchQueueConfig[Metric])
    BatchQueueConfig[Metric](selector=by_key(lambda item: item.name))
    BatchQueueConfig[Metric](selector=fair_by(lambda item: item.name))
    BatchQueueConfig[Metric](
        selector=fair_by(key_of, weight=lambda name: 2 * len(name))
    )
    BatchQueueConfig[Metric](selector=fair_by)  # type: ignore[arg-type]
    fair_by(key_of, weight=key_of)  # type: ignore[arg-type]
    fair_by(unhashable_of)  # type: ignore[type-var]
    BatchQueueConfig[Metric](selector=lambda item, n: len(item.name) % n)
    BatchQueueConfig[Metric](consumer=lambda batch: use(batch[0].value))
    BatchQueueConfig[Metric](on_error=lambda batch, error: use(batch[0], error))
    BatchQueueConfig[Metric](on_retry=lambda batch, _, n, wait: use(batch[0], n + wait))
    BatchQueueConfig[Metric](on_retry=async_on_error)  # type: ignore[arg-type]

    BatchQueueConfig[Metric](
        on_error=lambda batch, _: use(batch[0].nope)  # type: ignore[attr-defined]
    )

    BatchQueueConfig[Metric](consumer=takes_strings)  # type: ignore[arg-type]
    BatchQueueConfig[Metric](when_full="wait")  # type: ignore[arg-type]
    BatchQueueConfig[Metric](drain_tasks=2)  # type: ignore[arg-type]
    BatchQueueConfig[Metric](DrainTaskPolicy.fixed(1))  # type: ignore[call-arg]
    config.buffer_size = 1  # type: ignore[misc]


def what_the_consumer_says_holds_beside_other_functions() -> None:
    """Any in their place would hide each wrong item, from `--strict`, too."""
    assert_type(
        BatchQueueConfig(consumer=async_function, selector=by_type),
        BatchQueueConfig[Metric],
    )
    assert_type(
        BatchQueueConfig(consumer=takes_a_sequence, selector=round_robin),
        BatchQueueConfig[Metric],
    )
    by_hand = BatchQueueConfig(
        consumer=async_function, selector=lambda item, n: len(item.name) % n
    )
    assert_type(by_hand, BatchQueueConfig[Metric])
    told = BatchQueueConfig(
        consumer=async_function,
        on_error=lambda batch, error: use(batch[0].value, error),
        on_retry=lambda batch, error, attempt, wait: use(batch[0].value, attempt),
    )
    assert_type(told, BatchQueueConfig[Metric])
    # Says nothing of items, and is for queues of any.
    assert_type(BatchQueueConfig(selector=round_robin), BatchQueueConfig[Any])


def failed_batches_go_on(dead: BatchQueue[Metric], queue: BatchQueue[Metric]) -> None:
    config = BatchQueueConfig(
        consumer=async_function,
        on_error=lambda batch, error: dead.produce_many(batch),
        on_retry=lambda batch, error, attempt, wait: len(batch),
    )
    assert_type(config, BatchQueueConfig[Metric])
    queue.add_handler(
        Metric, async_function, on_error=lambda batch, error: dead.produce_many(batch)
    )


# --- the queue


async def queues(config: BatchQueueConfig[Metric]) -> None:
    queue = BatchQueue("metrics", config)
    assert_type(queue, BatchQueue[Metric])
    assert_type(BatchQueue("anything"), BatchQueue[Any])
    async with queue as entered:
        assert_type(entered, BatchQueue[Metric])
    assert_type(await queue.start(), None)
    assert_type(await queue.produce(Latency()), bool)
    assert_type(queue.produce_nowait(Metric()), bool)
    assert_type(queue.offer(Latency()), Offer)
    queue.offer(1)  # type: ignore[arg-type]
    assert_type(await queue.produce_many([Latency(), Metric()]), int)
    assert_type(await queue.produce_many(Metric() for _ in range(3)), int)
    assert_type(await queue.flush(), None)
    assert_type(await queue.flush(timeout=1.5), None)
    assert_type(await queue.shutdown(timeout=30.0), list[Metric])
    assert_type(await queue.shutdown(None), list[Metric])
    assert_type(queue.name, str)
    assert_type(queue.is_running, bool)
    assert_type(queue.stats(), BatchQueueStats)
    assert_type(queue.partition_of(Metric()), int)

    await queue.produce("text")  # type: ignore[arg-type]
    queue.produce_nowait(1)  # type: ignore[arg-type]
    await queue.produce_many(["text"])  # type: ignore[list-item]
    queue.produce(Metric())  # type: ignore[unused-coroutine]
    queue.name = "other"  # type: ignore[misc]


def numbers(stats: BatchQueueStats) -> None:
    assert_type(stats.name, str)
    assert_type(stats.accepted + stats.rejected + stats.waiting + stats.in_flight, int)
    assert_type(stats.rejected_closed, int)
    assert_type(stats.handled + stats.failed + stats.dropped, int)
    assert_type(stats.unhandled + stats.returned + stats.capacity, int)
    assert_type(stats.total_used, int)
    assert_type(stats.used_fraction, float)
    assert_type(stats.oldest_age + stats.partitions[0].oldest_age, float)
    assert_type(stats.waiting_producers + stats.partitions[0].waiting_producers, int)
    assert_type(stats.top(3), tuple[PartitionStats, ...])
    assert_type(stats.partitions, tuple[PartitionStats, ...])
    assert_type(stats.partitions[0].index, int)
    assert_type(stats.partitions[0].owner, int | None)
    assert_type(stats.partitions[0].used_fraction, float)
    assert_type(stats.drain_tasks, tuple[DrainTaskStats, ...])
    assert_type(stats.drain_tasks[0].partitions, tuple[int, ...])
    assert_type(stats.drain_tasks[0].cycles, int)
    assert_type(stats.drain_tasks[0].busy, float)
    assert_type(stats.drain_tasks[0].load, float)
    assert_type(stats.last_round, RebalancingRound | None)
    assert_type(stats.retried, int)
    if active := stats.drain_task_limit:
        assert_type(active, DrainTaskLimit)
        assert_type(active.drain_tasks + active.before + active.faster, int)
        assert_type(active.no_gain + active.idle + active.throttled, int)
    assert_type(stats.waiting_bytes, float | None)
    assert_type(stats.in_flight_bytes, float | None)
    assert_type(stats.handlers, tuple[HandlerStats, ...])
    handler = stats.handlers[0]
    assert_type(handler.inside_for, float)
    assert_type(handler.name, str)
    assert_type(handler.batches + handler.items + handler.retried, int)
    assert_type(handler.cuts, Cuts | None)
    assert_type(handler.limit, BatchLimit | None)
    if handler.limit:
        assert_type(handler.limit.max_batch + handler.limit.before, int)
        told = handler.limit.faster + handler.limit.no_gain + handler.limit.slower
        assert_type(told + handler.limit.throttled + handler.limit.failed, int)
        assert_type(handler.limit.reason == "start", bool)
    assert_type(handler.sizes, Histogram | None)
    assert_type(handler.seconds, Histogram | None)
    if handler.sizes and handler.cuts:
        assert_type(handler.sizes.counts, tuple[int, ...])
        assert_type(handler.sizes.bounds, tuple[float, ...])
        assert_type(handler.sizes.mean + handler.sizes.total, float)
        assert_type(handler.cuts.full + handler.cuts.due + handler.cuts.linger, int)
        assert_type(handler.cuts.flush + handler.cuts.close, int)


# --- manager


async def managers(config: BatchQueueConfig[Metric]) -> None:
    async with BatchQueueManager() as manager:
        assert_type(manager, BatchQueueManager)
        assert_type(await manager.create("metrics", config), BatchQueue[Metric])
        assert_type(await manager.create("anything"), BatchQueue[Any])
        assert_type(await manager.get_or_create("metrics", config), BatchQueue[Metric])
        assert_type(manager.get("metrics"), BatchQueue[Any] | None)
        assert_type(await manager.flush(timeout=5.0), None)
        assert_type(await manager.shutdown("metrics"), list[Any])
        assert_type(await manager.shutdown_all(timeout=5.0), dict[str, list[Any]])
        assert_type(drain_on_signals(manager), None)
        drain_on_signals(await manager.create("one of them", config))
        drain_on_signals(manager, signals=(signal.SIGTERM, signal.SIGINT))


# --- merging


def merges(queue: BatchQueue[Metric], database: BatchQueue[Metric]) -> None:
    def total(old: Metric, new: Metric) -> Metric:
        return old

    def key(metric: Metric) -> str:
        return metric.name

    merging = Merging(key=key, merge=total, then=database, every=2.0, at_most=100)
    assert_type(merging, Merging[Metric])
    assert_type(merging.held, int)
    queue.add_handler(Metric, merging)
    queue.add_handler(Metric, Merging(key=key, merge=total, then=async_function))
    Merging[Metric](key=key, merge=key, then=database)  # type: ignore[arg-type]


# --- bridge


def bridges(queue: BatchQueue[Metric], config: BatchQueueConfig[Metric]) -> None:
    bridge = SyncBatchQueue(queue)
    assert_type(bridge, SyncBatchQueue[Metric])
    assert_type(bridge.call(asks, 1, timeout=2.0), str)
    bridge.call(asks, "1")  # type: ignore[arg-type]
    assert_type(bridge.produce(Latency()), bool)
    assert_type(bridge.produce(Metric(), timeout=1.0), bool)
    assert_type(bridge.offer(Metric()), Offer)
    assert_type(bridge.produce_many(iter([Metric()]), timeout=None), int)
    assert_type(bridge.flush(timeout=1), None)
    assert_type(bridge.stats(), BatchQueueStats)
    assert_type(bridge.add_handler(Metric, AsyncHandler(), weight=2.0), None)
    assert_type(bridge.shutdown(), list[Metric])
    assert_type(bridge.shutdown(timeout=1.0), list[Metric])
    with LoopThread() as loop_thread:
        assert_type(loop_thread, LoopThread)
        opened = loop_thread.open("metrics", config, handlers={Metric: AsyncHandler()})
        assert_type(opened, SyncBatchQueue[Metric])
        assert_type(opened.queue, BatchQueue[Metric])
        assert_type(loop_thread.open("anything"), SyncBatchQueue[Any])
        assert_type(loop_thread.flush(timeout=5.0), None)

    bridge.produce("text")  # type: ignore[arg-type]
    assert_type(process_queue(opens_metrics), SyncBatchQueue[Metric])
    process_queue(opens_metrics, make_loop_thread=lambda: LoopThread(patience=2.0))
    assert_type(close_process_queues(), None)
    assert_type(close_process_queues([opens_metrics]), None)


def opens_metrics(loop_thread: LoopThread) -> SyncBatchQueue[Metric]:
    return loop_thread.open("metrics", None, {Metric: AsyncHandler()})


# --- errors


def errors(error: DeliveryError) -> None:
    assert_type(error.count, int)
    assert_type(error.failures, tuple[Failure, ...])
    assert_type(error.failures[0].item, object | None)
    assert_type(error.failures[0].error, BaseException | None)
    base: type[BatchQueueError]
    too_large = ItemTooLarge(2, 1.5)
    assert_type(too_large.size + too_large.buffer_bytes, float)
    for base in (
        ConfigConflict,
        DuplicateQueue,
        ItemTooLarge,
        ProcessDied,
        WouldDeadlock,
        DeliveryError,
    ):
        use(base)


def answers() -> None:
    partly = PartialFailure({2, 0}, retry_after=1)
    assert_type(partly.failed, tuple[int, ...])
    assert_type(partly.retry_after, float | None)
    assert_type(partly.results, Sequence[object] | None)
    use(PartialFailure([1], results=[{"y": 1}, None]))
    use(PartialFailure(n for n in range(3)), PartialFailure([]))
    assert_type(RetryAfter(30).seconds, float)

    PartialFailure(["first"])  # type: ignore[list-item]
    PartialFailure([0], 1.0)  # type: ignore[call-arg]
    RetryAfter("30")  # type: ignore[arg-type]


def a_sync_handler_may_return_an_awaitable(batch: list[Metric]) -> Awaitable[None]:
    return async_function(batch)


def returning_awaitables(queue: BatchQueue[Metric]) -> None:
    queue.add_handler(Metric, a_sync_handler_may_return_an_awaitable)
