"""B3: a handler whose items live in one partition is never entered twice at once."""

import asyncio
import threading
import time
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    PartitionSelector,
    by_key,
    by_type,
    in_thread,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled

QUICK = IdleBackoff(0.001, 0.002)


def two_drain_tasks(
    selector: PartitionSelector[Any] = by_type,
    *,
    consumer: RecordingHandler[Any] | None = None,
    buffer_size: int = 100,
) -> BatchQueue[Any]:
    """Two partitions, one for each drain task."""
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=selector,
        consumer=consumer,
        buffer_size=buffer_size,
        idle=QUICK,
    )
    return BatchQueue("q", config)


def to_the_second(_: object, __: int) -> int:
    return 1


class Slow(RecordingHandler[Any]):
    """Awaits inside of its hooks, too, so that a second call could come in."""

    async def on_idle(self) -> None:
        with self._inside("on_idle"):
            self.idle_calls += 1
            await asyncio.sleep(0.003)

    async def on_flush(self) -> None:
        with self._inside("on_flush"):
            self.flush_calls += 1
            await asyncio.sleep(0.003)

    async def on_close(self) -> None:
        with self._inside("on_close"):
            self.close_calls += 1
            await asyncio.sleep(0.003)


@every_loop
async def test_no_call_meets_another_under_load_growth_and_flushes() -> None:
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.adaptive(multiplier=2),
        buffer_size=5,
        max_batch=3,
        idle=QUICK,
    )
    types = [type(f"Type{number}", (), {}) for number in range(24)]
    handlers = {each: Slow(delay=0.001 * (n % 3)) for n, each in enumerate(types)}

    async def produce(item_type: type) -> None:
        for step in range(12):
            assert await queue.produce(item_type())
            await asyncio.sleep(0.002 * (step % 3))

    async with BatchQueue("q", config) as queue:
        for each in types[:6]:
            queue.add_handler(each, handlers[each])
        running = [asyncio.create_task(produce(each)) for each in types[:6]]
        for each in types[6:]:
            await asyncio.sleep(0.001)
            queue.add_handler(each, handlers[each])
            running.append(asyncio.create_task(produce(each)))
            if len(running) % 5 == 0:
                await queue.flush()
        await asyncio.gather(*running)
    assert [handler.max_concurrency for handler in handlers.values()] == [1] * 24
    assert [len(handler.items) for handler in handlers.values()] == [12] * 24
    assert [handler.close_calls for handler in handlers.values()] == [1] * 24
    check_settled(queue)


@every_loop
async def test_on_idle_never_meets_consume_with_a_custom_selector() -> None:
    """The original's D6: it took the idle owner from the type, not the selector."""
    handler = Slow(delay=0.007)
    other = Slow()
    async with two_drain_tasks(to_the_second) as queue:
        # Its home would be the first partition, whose drain task is idle all along.
        queue.add_handler(int, handler)
        queue.add_handler(str, other)
        for item in range(20):
            assert await queue.produce(item)
            await asyncio.sleep(0.004)
        await until(lambda: handler.idle_calls > 2)
    assert handler.max_concurrency == 1
    assert handler.items == list(range(20))


@every_loop
async def test_on_idle_never_meets_a_consumer_at_work_elsewhere() -> None:
    handler = Slow(delay=0.007)
    async with two_drain_tasks(to_the_second, consumer=handler) as queue:
        for item in range(20):
            assert await queue.produce(item)
            await asyncio.sleep(0.004)
        await until(lambda: handler.idle_calls > 2)
    assert handler.max_concurrency == 1


@every_loop
async def test_on_flush_and_on_close_meet_nobody_with_a_custom_selector() -> None:
    handler = Slow(delay=0.003)
    async with two_drain_tasks(to_the_second) as queue:
        queue.add_handler(int, handler)
        for item in range(20):
            assert await queue.produce(item)
            if item % 4 == 0:
                await asyncio.gather(queue.flush(), queue.flush())
    assert handler.max_concurrency == 1
    assert handler.flush_calls >= 5
    assert handler.close_calls == 1
    assert handler.calls[-1] == "on_close"


@every_loop
async def test_a_base_with_a_subclass_elsewhere_is_entered_once_at_a_time() -> None:
    """The subclass lost its own handler; both partitions' items go to the base's."""

    class Base: ...

    class Sub(Base): ...

    handler = Slow(delay=0.002)
    async with two_drain_tasks(buffer_size=2) as queue:
        queue.add_handler(Base, handler)
        queue.add_handler(Sub, RecordingHandler())
        queue.remove_handler(Sub)

        async def produce(kind: type) -> None:
            for _ in range(30):
                assert await queue.produce(kind())

        await asyncio.gather(produce(Base), produce(Sub))
        used = [each.index for each in queue.stats().partitions if each.accepted]
        assert used == [0, 1]
    assert handler.max_concurrency == 1
    assert len(handler.items) == 60


@every_loop
async def test_registering_the_same_handler_again_does_not_let_it_in_twice() -> None:
    """Its `on_idle` waits, although it is a new registration of the old object."""
    gate = asyncio.Event()
    handler = RecordingHandler[Any](gate=gate)
    async with two_drain_tasks(to_the_second) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(1)
        await handler.entered()
        # With another number it idles elsewhere.
        queue.add_handler(str, RecordingHandler())
        queue.add_handler(int, handler, weight=2.0)
        await asyncio.sleep(0.02)
        gate.set()
    assert handler.max_concurrency == 1


@every_loop
async def test_coming_back_after_another_does_not_let_a_handler_in_twice() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[Any](gate=gate)
    async with two_drain_tasks(to_the_second) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(1)
        await handler.entered()
        queue.add_handler(int, RecordingHandler())
        queue.add_handler(int, handler)
        await asyncio.sleep(0.02)
        gate.set()
    assert handler.max_concurrency == 1


@every_loop
async def test_one_handler_of_two_types_in_one_partition_is_entered_once() -> None:
    """The other type's registration idles with the other drain task."""
    gate = asyncio.Event()
    handler = RecordingHandler[Any](gate=gate)
    async with two_drain_tasks(to_the_second) as queue:
        queue.add_handler(str, handler)
        queue.add_handler(int, handler)
        assert await queue.produce(1)
        await handler.entered()
        await asyncio.sleep(0.02)
        gate.set()
    assert handler.max_concurrency == 1


@every_loop
async def test_replacing_a_handler_under_load_keeps_each_of_them_exclusive() -> None:
    handlers = [Slow(delay=0.002) for _ in range(10)]
    async with two_drain_tasks(buffer_size=3) as queue:
        queue.add_handler(int, handlers[0])

        async def produce() -> None:
            for item in range(100):
                assert await queue.produce(item)

        producing = asyncio.create_task(produce())
        for handler in handlers[1:]:
            await asyncio.sleep(0.006)
            queue.add_handler(int, handler)
        await producing
    assert {handler.max_concurrency for handler in handlers} <= {0, 1}
    received = [item for handler in handlers for item in handler.items]
    assert received == list(range(100))
    for handler in handlers:
        assert handler.close_calls == 1
        assert handler.calls[-1] == "on_close", handler.calls


@every_loop
async def test_a_removed_handler_is_closed_after_its_last_batch() -> None:
    """Its last batch is with a drain task other than the one that calls its hooks."""
    gate = asyncio.Event()
    slow, removed = RecordingHandler[Any](gate=gate), RecordingHandler[Any]()
    async with two_drain_tasks(to_the_second) as queue:
        queue.add_handler(str, removed)
        queue.add_handler(int, slow)
        assert await queue.produce_many([1, "taken with it"]) == 2
        await slow.entered()
        assert queue.remove_handler(str)
        await asyncio.sleep(0.02)
        gate.set()
        await until(lambda: removed.close_calls)
        await until(lambda: queue.stats().in_flight == 0)
    assert removed.items == ["taken with it"]
    assert removed.calls[-1] == "on_close", removed.calls


@every_loop
async def test_a_base_is_closed_after_the_last_batch_of_its_subclasses() -> None:
    class Base: ...

    class Sub(Base): ...

    gate = asyncio.Event()
    slow, base = RecordingHandler[Any](gate=gate), RecordingHandler[Any]()
    async with two_drain_tasks() as queue:
        queue.add_handler(Base, base)
        queue.add_handler(Sub, RecordingHandler())
        queue.remove_handler(Sub)
        # The third type shares the lighter partition, which is the subclass's.
        queue.add_handler(int, slow)
        assert await queue.produce_many([1, Sub()]) == 2
        assert queue.stats().partitions[1].accepted == 2
        await slow.entered()
        assert queue.remove_handler(Base)
        await asyncio.sleep(0.02)
        gate.set()
        await until(lambda: base.close_calls)
        await until(lambda: queue.stats().in_flight == 0)
    assert len(base.items) == 1
    assert base.calls[-1] == "on_close", base.calls


@every_loop
async def test_a_closed_handler_hears_no_more_of_its_queue() -> None:
    """Removed while its drain task was busy: no `on_idle` after `on_close`."""
    gate = asyncio.Event()
    busy, removed = RecordingHandler[Any](gate=gate), RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any](idle=QUICK)) as queue:
        queue.add_handler(int, busy)
        queue.add_handler(str, removed)
        assert await queue.produce(1)
        await busy.entered()
        assert queue.remove_handler(str)
        await asyncio.sleep(0.02)
        gate.set()
        await until(lambda: removed.close_calls)
        await asyncio.sleep(0.02)
    assert removed.calls[-1] == "on_close", removed.calls
    assert removed.close_calls == 1


@every_loop
async def test_a_handler_in_use_for_another_type_is_not_closed() -> None:
    handler = RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any](idle=QUICK)) as queue:
        queue.add_handler(int, handler)
        queue.add_handler(str, handler)
        assert queue.remove_handler(int)
        await asyncio.sleep(0.02)
        assert handler.close_calls == 0
        assert await queue.produce("still")
    assert handler.items == ["still"]
    assert handler.calls[-1] == "on_close"
    assert handler.close_calls == 1


@every_loop
async def test_a_handler_that_is_added_again_is_not_closed_in_between() -> None:
    handler = RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any](idle=QUICK)) as queue:
        for item in range(5):
            queue.add_handler(int, handler)
            assert await queue.produce(item)
            await turns()
            assert queue.remove_handler(int)
            queue.add_handler(int, handler)
            await asyncio.sleep(0.005)
    assert handler.items == list(range(5))
    assert handler.close_calls == 1


@every_loop
async def test_items_with_equal_keys_are_never_handled_side_by_side() -> None:
    running: set[str] = set()
    handled: list[tuple[str, int]] = []

    async def consume(batch: list[tuple[str, int]]) -> None:
        keys = {key for key, _ in batch}
        assert not keys & running
        running.update(keys)
        await asyncio.sleep(0.002)
        running.difference_update(keys)
        handled.extend(batch)

    config = BatchQueueConfig[tuple[str, int]](
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(8),
        selector=by_key(lambda item: item[0]),
        consumer=consume,
        max_batch=2,
    )
    async with BatchQueue("q", config) as queue:
        for step in range(20):
            for key in "abcdef":
                assert await queue.produce((key, step))
    for key in "abcdef":
        assert [step for each, step in handled if each == key] == list(range(20))
    assert check_settled(queue).failed == 0


@every_loop
async def test_a_consumer_of_several_drain_tasks_is_entered_concurrently() -> None:
    """What the docs say about it: it must be safe to enter."""
    handler = RecordingHandler[int](delay=0.01)
    async with two_drain_tasks(
        lambda item, partitions: item % partitions, consumer=handler
    ) as queue:
        assert await queue.produce_many(range(10)) == 10
    assert handler.max_concurrency == 2


@every_loop
async def test_a_consumer_of_one_drain_task_is_entered_once_at_a_time() -> None:
    handler = Slow(delay=0.002)
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(4),
        selector=lambda item, partitions: item % partitions,
        consumer=handler,
        max_batch=2,
        idle=QUICK,
    )
    async with BatchQueue("q", config) as queue:
        for item in range(40):
            assert await queue.produce(item)
            await asyncio.sleep(0.001)
        await queue.flush()
    assert handler.max_concurrency == 1


class Blocking:
    """Sleeps on its thread, and notices when a second thread comes in."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.met_another = False
        self.calls: list[str] = []

    def consume(self, batch: list[int]) -> None:
        self._work("consume", len(batch))

    def on_idle(self) -> None:
        self._work("on_idle")

    def on_flush(self) -> None:
        self._work("on_flush")

    def on_close(self) -> None:
        self._work("on_close")

    def _work(self, name: str, times: int = 1) -> None:
        if not self.lock.acquire(blocking=False):
            self.met_another = True
            return
        try:
            self.calls += [name] * times
            time.sleep(0.002)
        finally:
            self.lock.release()


@pytest.mark.real_time
@pytest.mark.parametrize("consumer", [False, True])
async def test_a_blocking_handler_in_threads_is_entered_once_at_a_time(
    *, consumer: bool
) -> None:
    """Even as a consumer of several drain tasks: the wrapper keeps calls apart."""
    handler = Blocking()
    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, partitions: item % partitions,
        consumer=in_thread(handler) if consumer else None,
        idle=QUICK,
        buffer_size=4,
    )
    async with BatchQueue("q", config) as queue:
        if not consumer:
            queue.add_handler(int, in_thread(handler))
        for item in range(60):
            assert await queue.produce(item)
            if item % 20 == 0:
                await queue.flush()
    assert not handler.met_another
    assert handler.calls.count("consume") == 60
    assert handler.calls.count("on_close") == 1
    assert handler.calls[-1] == "on_close"
