"""Every public signature of the ring, as users write it; checked by mypy, never run.

`assert_type` pins what is inferred; `type: ignore` with a code pins what is refused,
since unused ignores are errors.
"""

from typing import Any, assert_type

from batchqueue_async.ring import (
    BlockingWait,
    BusySpinWait,
    ConsumerStats,
    Disruptor,
    EventBatchHandler,
    EventHandler,
    ExceptionHandler,
    HandlerGroup,
    InsufficientCapacity,
    InvalidArgument,
    MultiProducerSequencer,
    ProducerType,
    Rewind,
    RewindBatch,
    RingBuffer,
    RingError,
    RingHalted,
    RingStats,
    Sequence,
    SequenceBarrier,
    SingleProducerSequencer,
    SleepingWait,
    SyncRing,
    TimeoutBlockingWait,
    WaitStrategy,
    WorkerPool,
    YieldingWait,
    halt,
    log_and_continue,
)


class Trade:
    price: float = 0.0


class AsyncHandler:
    async def on_event(
        self, event: Trade, sequence: int, end_of_batch: bool
    ) -> None: ...

    def on_batch_start(self, size: int) -> None: ...

    async def on_start(self) -> None: ...

    def on_timeout(self, sequence: int) -> None: ...


class SyncHandler:
    def on_event(self, event: Trade, sequence: int, end_of_batch: bool) -> None: ...


class SuperHandler:
    def on_event(self, event: object, sequence: int, end_of_batch: bool) -> None: ...


class BatchesOfTrades:
    async def on_batch(self, events: list[Trade], first_sequence: int) -> None: ...


class HandlerOfStrings:
    def on_event(self, event: str, sequence: int, end_of_batch: bool) -> None: ...


def function(event: Trade, sequence: int, end_of_batch: bool) -> None: ...


async def async_function(event: Trade, sequence: int, end_of_batch: bool) -> None: ...


def fill(event: Trade, sequence: int) -> None: ...


def fill_price(event: Trade, sequence: int, price: float) -> None: ...


def fill_both(event: Trade, sequence: int, price: float, name: str) -> None: ...


def on_error(error: Exception, sequence: int, event: Trade) -> None: ...


async def async_on_error(error: Exception, sequence: int, event: object) -> None: ...


def use(*_: object) -> None: ...


def graphs() -> None:
    disruptor = Disruptor(
        Trade, 1024, producer=ProducerType.SINGLE, wait=SleepingWait()
    )
    Disruptor(Trade, 1024, ProducerType.MULTI, BlockingWait())
    assert_type(disruptor, Disruptor[Trade])
    group = disruptor.handle_events_with(AsyncHandler(), SyncHandler())
    assert_type(group, HandlerGroup[Trade])
    assert_type(group.then(BatchesOfTrades(), max_batch=10), HandlerGroup[Trade])
    group.then(function, async_function, SuperHandler(), rewind=Rewind(attempts=3))
    group.and_(disruptor.after(function)).handle_events_with(
        lambda event, sequence, end_of_batch: use(event.price, sequence + 1)
    )
    disruptor.handle_events_with_worker_pool(SyncHandler(), SyncHandler())
    disruptor.handle_exceptions_with(halt)
    disruptor.handle_exceptions_with(log_and_continue, function)
    disruptor.handle_exceptions_with(on_error)
    disruptor.handle_exceptions_with(async_on_error)
    assert_type(disruptor.describe(), str)
    assert_type(disruptor.stats(), RingStats)
    assert_type(disruptor.halt(), None)

    disruptor.handle_events_with(HandlerOfStrings())  # type: ignore[arg-type]
    disruptor.handle_events_with(42)  # type: ignore[arg-type]
    disruptor.handle_exceptions_with(function)  # type: ignore[arg-type]
    Disruptor(Trade, "1024")  # type: ignore[arg-type]
    Disruptor(Trade, 1024, BlockingWait())  # type: ignore[arg-type]


async def lives(disruptor: Disruptor[Trade]) -> None:
    async with disruptor as ring:
        assert_type(ring, RingBuffer[Trade])
    assert_type(await disruptor.start(), RingBuffer[Trade])
    assert_type(await disruptor.shutdown(), None)
    assert_type(await disruptor.shutdown(timeout=None), None)
    assert_type(disruptor.ring, RingBuffer[Trade])


async def producers(ring: RingBuffer[Trade]) -> None:
    assert_type(await ring.claim(), int)
    assert_type(await ring.claim(n=3), int)
    assert_type(ring.try_claim(3), int)
    assert_type(ring[7], Trade)
    assert_type(ring.events(1, 3), list[Trade])
    assert_type(ring.publish(1), None)
    assert_type(ring.publish(1, 3), None)
    assert_type(ring.abandon(1, 3), None)
    async with ring.slot() as event:
        assert_type(event, Trade)
    assert_type(await ring.publish_event(fill), None)
    assert_type(await ring.publish_event(fill_price, 1.5), None)
    assert_type(await ring.publish_event(fill_both, 1.5, "name"), None)
    assert_type(ring.try_publish_event(fill_both, 1.5, "name"), bool)
    assert_type(await ring.publish_events(fill_price, [1.5, 2.5]), int)
    assert_type(ring.cursor + ring.capacity + ring.remaining_capacity(), int)
    assert_type(ring.is_available(3), bool)

    await ring.publish_event(fill_price, "1.5")  # type: ignore[arg-type]
    await ring.publish_event(fill_price)  # type: ignore[arg-type]
    await ring.publish_events(fill_price, ["1.5"])  # type: ignore[arg-type]
    ring.claim()  # type: ignore[unused-awaitable]
    ring.cursor = 3  # type: ignore[misc]


def threads(ring: RingBuffer[Trade]) -> None:
    sync_ring = SyncRing(ring)
    assert_type(sync_ring, SyncRing[Trade])
    assert_type(sync_ring.publish_event(fill), bool)
    assert_type(sync_ring.publish_event(fill_price, 1.5, timeout=2), bool)
    assert_type(sync_ring.publish_events(fill_price, [1.5], timeout=None), int)
    assert_type(sync_ring.capacity, int)

    sync_ring.publish_event(fill_price, "1.5")  # type: ignore[arg-type]


async def parts() -> None:
    ring = RingBuffer(Trade, 64, wait=TimeoutBlockingWait(1.5))
    assert_type(ring, RingBuffer[Trade])
    for sequencer in (SingleProducerSequencer(8), MultiProducerSequencer(8)):
        assert_type(await sequencer.claim(2), int)
        assert_type(sequencer.try_claim(), int)
        assert_type(sequencer.publish(0, 1), None)
        assert_type(sequencer.cursor, int)
        assert_type(sequencer.add_gating_sequences(Sequence(), Sequence(7)), None)
        assert_type(sequencer.remove_gating_sequence(Sequence()), bool)
    sequence = Sequence()
    sequence.value += 1
    assert_type(sequence.value, int)
    barrier = ring.new_barrier(sequence)
    assert_type(barrier, SequenceBarrier)
    assert_type(await barrier.wait_for(3), int)
    async with WorkerPool(ring, SyncHandler(), function) as pool:
        assert_type(pool, WorkerPool[Trade])
        assert_type(pool.sequences, tuple[Sequence, ...])
        assert_type(pool.work_sequence, Sequence)
    assert_type(await pool.drain_and_halt(timeout=3.0), None)


def values(stats: RingStats) -> None:
    assert_type(stats.cursor + stats.claimed + stats.published, int)
    assert_type(stats.claims_waited + stats.claims_waiting + stats.capacity, int)
    assert_type(stats.consumers, tuple[ConsumerStats, ...])
    assert_type(stats.consumers[0].lag, int)
    assert_type(stats.consumers[0].name, str)
    waits: list[WaitStrategy] = [
        BlockingWait(),
        BusySpinWait(),
        YieldingWait(),
        SleepingWait(retries=100, sleep=1e-3),
        TimeoutBlockingWait(1.0),
    ]
    errors: list[type[RingError]] = [InsufficientCapacity, RingHalted, InvalidArgument]
    handlers: list[EventHandler[Trade]] = [AsyncHandler(), SuperHandler()]
    batches: EventBatchHandler[Trade] = BatchesOfTrades()
    chosen: ExceptionHandler = halt
    rewind: type[Exception] = RewindBatch
    use(waits, errors, handlers, batches, chosen, rewind)


def anything() -> None:
    assert_type(Disruptor[Any](dict, 8), Disruptor[Any])
