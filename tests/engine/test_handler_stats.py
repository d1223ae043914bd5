"""`stats().handlers`: what each handler's batches were like."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    Cuts,
    HandlerStats,
    Histogram,
    PartialFailure,
    PartitionPolicy,
    Retry,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import until
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


def cuts_of(queue: BatchQueue[Any]) -> Cuts:
    (only,) = queue.stats().handlers
    assert only.cuts is not None
    return only.cuts


def cuts(**of: int) -> Cuts:
    none = dict.fromkeys(("full", "due", "linger", "flush", "close"), 0)
    return Cuts(**{**none, **of})


async def test_every_handler_is_named_and_counted() -> None:
    async with BatchQueue[Any]("q") as queue:
        queue.add_handler(int, RecordingHandler[int]())
        queue.add_handler(str, lambda _: None)
        await queue.produce_many([1, "a", 2])
        await queue.flush()
        await queue.produce(3)
    first, second = queue.stats().handlers
    assert (first.name, first.batches, first.items) == (
        "RecordingHandler of int",
        2,
        3,
    )
    assert (second.batches, second.items) == (1, 1)
    assert "of str" in second.name
    assert (first.sizes, first.seconds, first.cuts) == (None, None, None)


async def test_items_are_counted_once_however_they_end() -> None:
    left = [OSError(), PartialFailure([1, 2]), KeyError()]
    handler = RecordingHandler[int](fail_when=lambda _: left.pop(0) if left else None)
    config = BatchQueueConfig[int](
        consumer=handler,
        retry=Retry(attempts=3, wait_initial=0, retry_on=(OSError,)),
        on_error=lambda _batch, _error: None,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(5))
    (only,) = queue.stats().handlers
    assert (only.batches, only.items, only.retried) == (1, 5, 7)


async def test_one_that_was_replaced_is_seen_until_it_is_closed() -> None:
    gate = asyncio.Event()
    former = RecordingHandler[int](gate=gate)
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, former)
        await queue.produce(1)
        await former.entered()
        queue.add_handler(int, lambda _: None)
        assert len(queue.stats().handlers) == 2
        gate.set()
        await until(lambda: former.close_calls)
        assert len(queue.stats().handlers) == 1


class TestMeasured:
    async def test_sizes_are_those_of_the_batches_as_they_were_cut(self) -> None:
        config = BatchQueueConfig[int](
            consumer=RecordingHandler[int](), max_batch=100, measure_handlers=True
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(250))
            await queue.flush()
            await queue.produce(1)
        sizes = queue.stats().handlers[0].sizes
        assert sizes is not None
        by_bound = dict(zip(sizes.bounds, sizes.counts, strict=False))
        assert {bound: n for bound, n in by_bound.items() if n} == {1: 1, 64: 1, 128: 2}
        assert (sizes.count, sizes.total) == (4, 251)
        assert sizes.mean == pytest.approx(251 / 4)

    @virtual
    async def test_seconds_are_those_of_the_calls(self) -> None:
        handler = RecordingHandler[int](
            delay=2.0, fail_when=lambda _: OSError() if len(handler.times) < 2 else None
        )
        config = BatchQueueConfig[int](
            consumer=handler,
            retry=Retry(attempts=2, wait_initial=0),
            measure_handlers=True,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        seconds = queue.stats().handlers[0].seconds
        assert seconds is not None
        assert seconds.counts[seconds.bounds.index(3.0)] == seconds.count == 2
        assert seconds.total == pytest.approx(4.0, abs=0.5)

    @virtual
    async def test_why_batches_were_cut(self) -> None:
        config = BatchQueueConfig[int](
            consumer=RecordingHandler[int](),
            max_batch=10,
            linger=1.0,
            measure_handlers=True,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(10))
            await asyncio.sleep(0.5)
            assert cuts_of(queue) == cuts(full=1)
            await queue.produce(1)
            await asyncio.sleep(2)
            assert cuts_of(queue) == cuts(full=1, linger=1)
            await queue.produce(1)
            await queue.flush()
            assert cuts_of(queue) == cuts(full=1, linger=1, flush=1)
            await queue.produce(1)
        assert cuts_of(queue) == cuts(full=1, linger=1, flush=1, close=1)

    async def test_without_linger_it_is_due_at_once(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](consumer=handler, measure_handlers=True)
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await until(lambda: handler.handled)
            assert cuts_of(queue) == cuts(due=1)

    async def test_a_piece_of_several_partitions_is_full(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](
            consumer=handler,
            partitions=PartitionPolicy.fixed(2),
            selector=lambda item, _: item % 2,
            max_batch=3,
            measure_handlers=True,
        )
        async with BatchQueue("q", config) as queue:
            for number in range(4):
                queue.produce_nowait(number)
            await until(lambda: len(handler.handled) == 4)
            assert cuts_of(queue) == cuts(full=1, due=1)

    async def test_nobody_to_handle_is_nobody_to_measure(self) -> None:
        config = BatchQueueConfig[int](measure_handlers=True)
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        assert queue.stats().handlers == ()
        assert queue.stats().unhandled == 1


async def test_an_empty_histogram_has_no_mean_to_speak_of() -> None:
    assert Histogram((1.0,), (0, 0), 0.0).mean == 0.0


async def test_they_are_values() -> None:
    one = HandlerStats(
        name="f",
        batches=1,
        items=2,
        retried=0,
        sizes=Histogram((1.0,), (0, 1), 2.0),
        seconds=None,
        cuts=cuts(due=1),
    )
    assert hash(one) == hash(one)
    assert "due=1" in repr(one)


class Registry(type):
    """A metaclass whose classes are false while nothing is registered with them."""

    def __len__(cls) -> int:
        return 0


class Registered(metaclass=Registry):
    """An item of such a class."""


async def test_a_class_that_is_false_has_its_name_in_the_label() -> None:
    async with BatchQueue[Registered]("q") as queue:
        queue.add_handler(Registered, lambda _: None)
        await queue.produce(Registered())
        await queue.flush()
    (handler,) = queue.stats().handlers
    assert handler.name.endswith(" of Registered")
