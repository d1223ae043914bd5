"""D4: who is told that nothing came, and how often."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Retry,
    round_robin,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import until

virtual = pytest.mark.asyncio(loop_factories=["virtual"])
pytestmark = every_loop

STEADY = IdleBackoff(shortest=1.0, longest=1.0)


async def test_on_an_empty_queue_every_handler_is_told() -> None:
    ints, strings = RecordingHandler[int](), RecordingHandler[str]()
    async with BatchQueue[object]("q") as queue:
        queue.add_handler(int, ints)
        queue.add_handler(str, strings)
        await until(lambda: ints.idle_calls and strings.idle_calls)


async def test_a_consumer_is_told() -> None:
    handler = RecordingHandler[int]()
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)):
        await until(lambda: handler.idle_calls)


@virtual
async def test_at_most_once_per_shortest_nap() -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[int](idle=STEADY)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        for _ in range(100):
            queue.add_handler(str, lambda _: None)
            await asyncio.sleep(0.1)
        assert handler.idle_calls <= 11
        assert handler.idle_calls >= 9


@virtual
async def test_a_consumer_of_several_drain_tasks_at_most_once_too() -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[int](
        idle=STEADY,
        drain_tasks=DrainTaskPolicy.fixed(5),
        partitions=PartitionPolicy.fixed(5),
        consumer=handler,
    )
    async with BatchQueue("q", config):
        await asyncio.sleep(20.5)
    assert 19 <= handler.idle_calls <= 21
    assert handler.max_concurrency == 1


@virtual
async def test_a_handler_that_is_absent_from_busy_cycles_is_told() -> None:
    busy, absent = RecordingHandler[int](), RecordingHandler[str]()
    async with BatchQueue("q", BatchQueueConfig[object](idle=STEADY)) as queue:
        queue.add_handler(int, busy)
        queue.add_handler(str, absent)
        await queue.produce(0)
        await asyncio.sleep(0.1)
        idle_before = busy.idle_calls
        began = absent.idle_calls
        for item in range(200):
            await queue.produce(item)
            await asyncio.sleep(0.05)
        assert 9 <= absent.idle_calls - began <= 11
        assert busy.idle_calls - idle_before <= 10


@virtual
async def test_it_comes_less_and_less_often_however_busy_others_are() -> None:
    """In the first pause after its own data, and then after ever longer naps."""
    idled: list[float] = []
    loop = asyncio.get_running_loop()

    class Absent(RecordingHandler[str]):
        def on_idle(self) -> None:  # type: ignore[override]
            idled.append(round(loop.time() - began, 2))

    config = BatchQueueConfig[object](idle=IdleBackoff(shortest=0.1, longest=12.8))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, RecordingHandler[int]())
        queue.add_handler(str, Absent())
        began = loop.time()
        for item in range(800):
            await queue.produce(item)
            await asyncio.sleep(0.05)
        came = loop.time() - began
        await queue.produce("data")
        for item in range(800):
            await queue.produce(item)
            await asyncio.sleep(0.05)
    # Each comes in a cycle, and these are a shortest nap apart.
    naps = [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 25.5, 38.3]
    expected = [*naps, *(came + each for each in naps)]
    assert idled == pytest.approx(expected, abs=0.3)


@virtual
async def test_it_naps_after_a_call_that_takes_longer_than_a_nap() -> None:
    """Else its handler would hardly ever be free for items."""

    class Slow(RecordingHandler[int]):
        async def on_idle(self) -> None:
            self.idle_calls += 1
            await asyncio.sleep(3.0)

    handler = Slow()
    async with BatchQueue("q", BatchQueueConfig[int](idle=STEADY)) as queue:
        queue.add_handler(int, handler)
        await asyncio.sleep(40.0)
        assert 9 <= handler.idle_calls <= 11


@virtual
async def test_who_was_at_work_in_the_pause_is_told_soon_after() -> None:
    """Another drain task is in the handler, or its own `on_flush` is."""

    class Flushing(RecordingHandler[int]):
        async def on_flush(self) -> None:
            await asyncio.sleep(0.005)

    handler = Flushing()
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        await asyncio.sleep(10.0)
        await queue.produce(1)
        before = handler.idle_calls
        await queue.flush()
        await asyncio.sleep(0.005)
        assert handler.idle_calls > before


@pytest.mark.parametrize("types", [[int], [int, str]])
async def test_a_handler_in_the_cycle_is_not_told(types: list[type]) -> None:
    """With whatever of its types."""
    handler = RecordingHandler[int]()
    calls: list[int] = []

    class Busy(RecordingHandler[int]):
        async def consume(self, batch: list[int]) -> None:
            await super().consume(batch)
            # The next item waits before this cycle ends.
            if len(self.batches) < 50:
                assert queue.produce_nowait(1)
            else:
                calls.append(self.idle_calls)

    handler = Busy()
    async with BatchQueue[int]("q") as queue:
        for item_type in types:
            queue.add_handler(item_type, handler)
        await queue.produce(1)
        await handler.entered()
        before = handler.idle_calls
        await until(lambda: calls)
        assert calls == [before]


@virtual
async def test_lingering_items_suppress_it() -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[int](idle=STEADY, linger=100.0)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        await asyncio.sleep(10.0)
        await queue.produce(1)
        before = handler.idle_calls
        await asyncio.sleep(50.0)
        assert handler.idle_calls == before
        await asyncio.sleep(60.0)
        assert handler.idle_calls > before


@virtual
async def test_lingering_items_suppress_it_in_busy_cycles_too() -> None:
    """Something did come for the second handler; it only waits for company."""
    busy, lingering = RecordingHandler[int](), RecordingHandler[Any]()
    config = BatchQueueConfig[object](
        idle=STEADY, linger=100.0, max_batch=2, partitions=PartitionPolicy.adaptive()
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, busy)
        queue.add_handler(str, lingering)
        # Nothing of this type lingers, or comes.
        queue.add_handler(float, lingering)
        await asyncio.sleep(10.0)
        await queue.produce("a")
        before = lingering.idle_calls
        for _ in range(40):
            await queue.produce_many([1, 2])
            await asyncio.sleep(1.0)
        assert len(busy.batches) == 40
        assert lingering.items == []
        assert lingering.idle_calls == before


@virtual
async def test_a_handler_of_several_types_at_most_once_too() -> None:
    handler = RecordingHandler[object]()
    async with BatchQueue("q", BatchQueueConfig[object](idle=STEADY)) as queue:
        add_for_all(queue, handler)
        await asyncio.sleep(10.0)
        assert 9 <= handler.idle_calls <= 11


def add_for_all(queue: BatchQueue[object], handler: RecordingHandler[object]) -> None:
    types: list[type] = [int, str, float, bytes]
    for item_type in types:
        queue.add_handler(item_type, handler)


@virtual
async def test_only_the_owner_of_a_handlers_items_tells_it() -> None:
    """So it is never beside `consume`, not even with several drain tasks."""
    handlers = [RecordingHandler[object](delay=0.3) for _ in range(4)]
    types: list[type] = [int, str, float, bytes]
    config = BatchQueueConfig[object](
        idle=IdleBackoff(0.1, 0.1),
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.adaptive(),
    )
    async with BatchQueue("q", config) as queue:
        for item_type, handler in zip(types, handlers, strict=True):
            queue.add_handler(item_type, handler)
        for _ in range(50):
            await queue.produce_many([1, "a", 1.0, b"a"])
            await asyncio.sleep(0.25)
        await asyncio.sleep(5.0)
    assert [handler.max_concurrency for handler in handlers] == [1] * 4
    assert all(handler.idle_calls for handler in handlers)


@virtual
async def test_with_a_custom_selector_it_is_not_beside_consume(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The original told a handler at work on another task (its defect D6)."""

    class Watching(RecordingHandler[int]):
        async def on_idle(self) -> None:
            with self._inside("on_idle"):
                assert self.running == 1
                await asyncio.sleep(0.05)
                assert self.running == 1
                self.idle_calls += 1

    handler = Watching(delay=0.3)
    config = BatchQueueConfig[int](
        idle=IdleBackoff(0.1, 0.1),
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(3),
        selector=round_robin,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        for item in range(50):
            await queue.produce(item)
            await asyncio.sleep(0.25)
        await asyncio.sleep(5.0)
        assert handler.idle_calls
    assert len(handler.handled) == 50
    assert "failed" not in caplog.text


async def test_one_that_raises_is_logged_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors: list[object] = []

    class Failing(RecordingHandler[int]):
        async def on_idle(self) -> None:
            self.idle_calls += 1
            message = "cannot idle"
            raise ValueError(message)

    handler = Failing()
    config = BatchQueueConfig[int](on_error=lambda batch, _: errors.append(batch))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        await until(lambda: handler.idle_calls >= 2)
        await queue.produce(1)
        await queue.flush()
        assert handler.handled == [1]
    assert "on_idle" in caplog.text
    assert errors == []


async def test_a_sync_one_is_called_too() -> None:
    calls: list[str] = []

    class Plain:
        def consume(self, batch: list[int]) -> None:
            calls.append("consume")

        def on_idle(self) -> None:
            calls.append("on_idle")

    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, Plain())
        await until(lambda: "on_idle" in calls)


async def test_not_during_shutdown() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    queue = BatchQueue[int]("q")
    await queue.start()
    queue.add_handler(int, handler)
    await queue.produce(1)
    await handler.entered()
    before = handler.idle_calls
    closing = asyncio.create_task(queue.shutdown())
    await asyncio.sleep(0.01)
    gate.set()
    await closing
    assert handler.idle_calls == before


@virtual
async def test_it_does_not_keep_a_drain_task_awake_that_drains() -> None:
    """It is due, and not called any more: its time must not end each nap at once."""
    handler = RecordingHandler[int]()

    async def fail_at_first(_: list[str]) -> None:
        if loop.time() < began + 50.0:
            raise OSError

    loop = asyncio.get_running_loop()
    began = loop.time()
    retry = Retry(attempts=100, wait_initial=60.0, wait_max=60.0)
    config = BatchQueueConfig[object](retry=retry, shutdown_timeout=None)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        queue.add_handler(str, fail_at_first)
        await queue.produce("text")
        await asyncio.sleep(1.0)
    assert queue.stats().handled == 1


async def test_times_that_are_superseded_are_forgotten() -> None:
    """Else a busy handler with a long `longest` would fill the memory."""
    handler = RecordingHandler[int]()
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, handler)
        await until(lambda: handler.idle_calls)
        times = queue._parts.tasks.drain_tasks[0]._due_hooks()
        (key,) = times.of
        for later in range(1000):
            times.put(key, 1e9 + later)
        assert len(times._heap) < 100
        assert times.next_due() == 1e9 + 999
