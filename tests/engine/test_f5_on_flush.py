"""F5, `on_flush`: after the last batch that a flush covers, never beside `consume`."""

import asyncio

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


class Flushing:
    """Has `on_flush` but no `on_idle`: between flushes nothing ends its naps."""

    def __init__(self, *, hold: bool = False) -> None:
        self.calls: list[str] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        if not hold:
            self.go_on.set()

    async def consume(self, batch: list[int]) -> None:
        self.calls.append(f"consume {batch}")

    async def on_flush(self) -> None:
        self.calls.append("on_flush")
        self.begun.set()
        await self.go_on.wait()


def three_at_once(handler: RecordingHandler[int]) -> BatchQueueConfig[int]:
    return BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(3),
        selector=round_robin,
        consumer=handler,
        max_batch=1,
    )


async def test_after_the_covered_batches() -> None:
    handler = RecordingHandler[int](delay=0.001)
    async with BatchQueue("q", BatchQueueConfig[int](max_batch=1)) as queue:
        queue.add_handler(int, handler)
        await queue.produce_many([1, 2, 3])
        await queue.flush()
        assert "on_idle" not in handler.calls[:3]
        assert handler.calls.index("on_flush") >= 3
        assert handler.flush_calls == 1
        assert handler.max_concurrency == 1


async def test_also_when_nothing_came() -> None:
    """What a handler has merged may be left from batches long ago."""
    handler = Flushing()
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        await queue.flush()
        await queue.flush()
    assert handler.calls == ["on_flush", "on_flush"]


async def test_flush_returns_after_it() -> None:
    handler = Flushing(hold=True)
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        flushing = asyncio.create_task(queue.flush())
        await handler.begun.wait()
        await turns()
        assert not flushing.done()
        handler.go_on.set()
        await flushing


async def test_each_handler_gets_it() -> None:
    handlers = [Flushing() for _ in range(4)]
    types: list[type] = [int, str, float, bytes]
    config = BatchQueueConfig[object](
        drain_tasks=DrainTaskPolicy.fixed(2), partitions=PartitionPolicy.adaptive()
    )
    async with BatchQueue("q", config) as queue:
        for item_type, handler in zip(types, handlers, strict=True):
            queue.add_handler(item_type, handler)
        await queue.flush()
    assert [handler.calls for handler in handlers] == [["on_flush"]] * 4


async def test_a_handler_of_several_types_gets_it_once() -> None:
    handler = Flushing()
    async with BatchQueue[object]("q") as queue:
        types: list[type] = [int, str, float, bytes]
        for item_type in types:
            queue.add_handler(item_type, handler)
        await queue.flush()
        assert handler.calls == ["on_flush"]
        # Also while one of its registrations is owed its end.
        queue.remove_handler(int)
        await queue.flush()
        assert handler.calls == ["on_flush", "on_flush"]


async def test_one_that_raises_is_told() -> None:
    class Failing(RecordingHandler[int]):
        async def on_flush(self) -> None:
            message = "disk full"
            raise OSError(message)

    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, Failing())
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
    assert [each.outcome for each in caught.value.failures] == ["on_flush"]
    assert isinstance(caught.value.failures[0].error, OSError)


async def test_a_second_flush_during_it_gets_its_own() -> None:
    """Its items may have come after the running `on_flush` looked."""
    handler = Flushing(hold=True)
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        first = asyncio.create_task(queue.flush())
        await handler.begun.wait()
        second = asyncio.create_task(queue.flush())
        await turns()
        handler.go_on.set()
        async with asyncio.timeout(30.0):
            await asyncio.gather(first, second)
    assert handler.calls == ["on_flush", "on_flush"]


async def test_a_flush_during_on_idle_does_not_wait_for_the_next_nap() -> None:
    in_idle, go_on = asyncio.Event(), asyncio.Event()

    class Idle(RecordingHandler[int]):
        async def on_idle(self) -> None:
            await super().on_idle()
            in_idle.set()
            await go_on.wait()

    handler = Idle()
    config = BatchQueueConfig[int](idle=IdleBackoff(1000.0, 1000.0))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        await in_idle.wait()
        flushing = asyncio.create_task(queue.flush())
        await turns()
        go_on.set()
        async with asyncio.timeout(30.0):
            await flushing
        assert handler.flush_calls == 1


async def test_a_handler_that_is_removed_meanwhile_does_not_hold_it_up() -> None:
    handler = Flushing()
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        await turns()
        flushing = asyncio.create_task(queue.flush())
        await asyncio.sleep(0)
        queue.remove_handler(int)
        async with asyncio.timeout(30.0):
            await flushing


async def test_a_handler_that_is_replaced_meanwhile_does_not_hold_it_up() -> None:
    handler = Flushing()
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        await turns()
        flushing = asyncio.create_task(queue.flush())
        await asyncio.sleep(0)
        queue.add_handler(int, Flushing())
        async with asyncio.timeout(30.0):
            await flushing


async def test_a_removed_handler_with_items_in_flight_is_flushed_or_closed() -> None:
    """It got covered items: what it merged must be pushed out before flush ends."""

    class Merging(RecordingHandler[int]):
        def __init__(self, gate: asyncio.Event) -> None:
            super().__init__(gate=gate)
            self.pushed: list[int] = []

        async def on_flush(self) -> None:
            self.pushed = list(self.handled)

        async def on_close(self) -> None:
            self.pushed = list(self.handled)

    gate = asyncio.Event()
    handler = Merging(gate)
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        await queue.produce(1)
        await handler.entered()
        queue.remove_handler(int)
        flushing = asyncio.create_task(queue.flush())
        await turns()
        gate.set()
        await flushing
        await turns()
        assert handler.pushed == [1]


async def test_a_cancelled_flush_asks_for_nothing_more() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        await queue.produce(1)
        await handler.entered()
        flushing = asyncio.create_task(queue.flush())
        await turns()
        flushing.cancel()
        await asyncio.wait({flushing})
        gate.set()
        await until(lambda: handler.handled)
        await turns()
        assert handler.flush_calls == 0


async def test_under_constant_load_it_is_never_beside_consume() -> None:
    handler = RecordingHandler[int](delay=0.001)
    config = BatchQueueConfig[int](max_batch=3, buffer_size=10)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                await queue.produce(1)
                await asyncio.sleep(0.0001)

        loading = asyncio.create_task(load())
        for _ in range(5):
            await queue.flush()
        stop.set()
        await loading
        assert handler.flush_calls == 5
        assert handler.max_concurrency == 1


class TestOneConsumerSeveralDrainTasks:
    async def test_alone_in_the_consumer(self) -> None:
        class Watching(RecordingHandler[int]):
            async def on_flush(self) -> None:
                with self._inside("on_flush"):
                    assert self.running == 1
                    await asyncio.sleep(0.001)
                    assert self.running == 1
                    self.flush_calls += 1

        handler = Watching(delay=0.001)
        async with BatchQueue("q", three_at_once(handler)) as queue:
            for _ in range(5):
                await queue.produce_many(range(9))
                await queue.flush()
        assert handler.flush_calls == 5
        assert handler.max_concurrency == 3

    async def test_once_per_flush(self) -> None:
        handler = RecordingHandler[int]()
        async with BatchQueue("q", three_at_once(handler)) as queue:
            await queue.produce_many(range(9))
            await queue.flush()
            assert handler.flush_calls == 1

    async def test_a_busy_consumer_does_not_starve_it(self) -> None:
        handler = RecordingHandler[int](delay=0.002)
        async with BatchQueue("q", three_at_once(handler)) as queue:
            stop = asyncio.Event()

            async def load() -> None:
                while not stop.is_set():
                    await queue.produce_many([1, 2, 3])
                    await asyncio.sleep(0.001)

            loading = asyncio.create_task(load())
            await asyncio.sleep(0.02)
            async with asyncio.timeout(30.0):
                await queue.flush()
            stop.set()
            await loading
            assert handler.flush_calls == 1

    async def test_a_consumer_that_produces_does_not_deadlock_with_it(self) -> None:
        """`on_flush` waits for the consumer, which waits for another partition."""
        config = BatchQueueConfig[int](
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(2),
            selector=lambda item, partitions: item % partitions,
            buffer_size=1,
        )
        go_on = asyncio.Event()
        inside = asyncio.Event()
        refused: list[BaseException] = []

        class Feeding(RecordingHandler[int]):
            async def consume(self, batch: list[int]) -> None:
                await super().consume(batch)
                if batch == [0]:
                    inside.set()
                    await go_on.wait()
                    try:
                        for item in (1, 3, 5):
                            await queue.produce(item)
                    except Exception as error:
                        refused.append(error)
                        raise

        handler = Feeding()
        config = BatchQueueConfig[int](
            drain_tasks=config.drain_tasks,
            partitions=config.partitions,
            selector=config.selector,
            buffer_size=1,
            consumer=handler,
            on_error=lambda _batch, _error: None,
        )
        async with BatchQueue("q", config) as queue:
            flushing: list[asyncio.Task[None]] = []
            flushing.append(asyncio.create_task(queue.flush()))
            await queue.produce(0)
            await inside.wait()
            flushing.append(asyncio.create_task(queue.flush()))
            await turns()
            go_on.set()
            async with asyncio.timeout(30.0):
                await asyncio.gather(*flushing, return_exceptions=True)
        assert handler.handled[0] == 0


@virtual
async def test_of_a_queue_that_closes_it_waits_for_on_close() -> None:
    held: list[int] = []
    written: list[int] = []

    class Holding:
        async def consume(self, batch: list[int]) -> None:
            held.extend(batch)

        async def on_flush(self) -> None:
            await asyncio.sleep(1)
            written.extend(held)
            held.clear()

        on_close = on_flush

    queue = BatchQueue("numbers", BatchQueueConfig[int](consumer=Holding()))
    await queue.start()
    await queue.produce_many(range(3))
    closing = asyncio.create_task(queue.close())
    await asyncio.sleep(0)
    await queue.flush()
    assert written == [0, 1, 2]
    await closing


@virtual
async def test_of_a_queue_that_closes_it_tells_that_on_close_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Holding:
        async def consume(self, batch: list[int]) -> None:
            pass

        async def on_flush(self) -> None:
            msg = "the disk is full"
            raise OSError(msg)

        on_close = on_flush

    queue = BatchQueue("numbers", BatchQueueConfig[int](consumer=Holding()))
    await queue.start()
    await queue.produce(1)
    closing = asyncio.create_task(queue.close())
    await asyncio.sleep(0)
    with pytest.raises(DeliveryError, match="Holding did not complete"):
        await queue.flush()
    await closing
    assert "the disk is full" in caplog.text


@virtual
@pytest.mark.parametrize("later", range(5))
async def test_a_deadline_in_the_turn_of_the_last_item_makes_no_receipt_untrue(
    later: int,
) -> None:
    gate = asyncio.Event()
    held: list[int] = []

    class Holding:
        async def consume(self, batch: list[int]) -> None:
            await gate.wait()
            held.extend(batch)

        async def on_flush(self) -> None:
            held.clear()

        on_close = on_flush

    queue = BatchQueue("numbers", BatchQueueConfig[int](consumer=Holding()))
    await queue.start()
    await queue.produce(1)
    flushing = asyncio.create_task(queue.flush())
    await turns()
    closing = asyncio.create_task(queue.shutdown(0))
    for _ in range(later):
        await asyncio.sleep(0)
    gate.set()
    await asyncio.wait({flushing, closing})
    assert isinstance(flushing.exception(), DeliveryError) == bool(
        queue.stats().not_closed
    )


async def test_a_queue_s_end_waits_for_no_on_flush_of_another_queue() -> None:
    gate = asyncio.Event()

    class Gated(RecordingHandler[int]):
        async def on_flush(self) -> None:
            await gate.wait()

    async with BatchQueue[int]("one") as one, BatchQueue[int]("other") as other:
        for each in (one, other):
            each.add_handler(int, Gated())
            await each.produce(1)
        await turns()
        flush = asyncio.create_task(one.flush())
        await turns()
        other.remove_handler(int)
        async with asyncio.timeout(5.0):
            await other.close()
        assert not flush.done()
        gate.set()
        await flush
