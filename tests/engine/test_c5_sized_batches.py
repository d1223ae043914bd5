"""C5: a batch never exceeds `max_batch_bytes`; a larger item goes alone."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartialFailure,
    PartitionPolicy,
    Retry,
)
from tests.engine.every_loop import every_loop
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


def sizes(batches: list[list[bytes]]) -> list[list[int]]:
    return [[len(item) for item in batch] for batch in batches]


def of(*lengths: int) -> list[bytes]:
    return [b"x" * length for length in lengths]


async def batches_of(
    items: list[Any],
    **settings: Any,  # noqa: ANN401  # of BatchQueueConfig
) -> list[list[Any]]:
    handler = RecordingHandler[Any]()
    config = BatchQueueConfig[Any](consumer=handler, **settings)
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many(items) == len(items)
    check_settled(queue)
    assert handler.items == items, "in order"
    return handler.batches


async def test_batches_are_as_large_as_they_may_be() -> None:
    batches = await batches_of(of(30, 30, 30, 30, 100, 1, 99, 1), max_batch_bytes=100)
    assert sizes(batches) == [[30, 30, 30], [30], [100], [1, 99], [1]]


async def test_a_single_larger_item_goes_alone() -> None:
    batches = await batches_of(of(10, 250, 10, 251), max_batch_bytes=100)
    assert sizes(batches) == [[10], [250], [10], [251]]


async def test_items_and_sizes_are_bounded_both() -> None:
    items = of(1, 1, 1, 60, 60, 1)
    batches = await batches_of(items, max_batch=2, max_batch_bytes=100)
    assert sizes(batches) == [[1, 1], [1, 60], [60, 1]]


async def test_any_unit_will_do() -> None:
    rows = [{"tokens": count} for count in (3, 4, 5, 2.5, 0.5)]
    batches = await batches_of(
        rows, size_of=lambda row: row["tokens"], max_batch_bytes=7.5
    )
    assert batches == [rows[:2], rows[2:4], rows[4:]]


async def test_texts_count_by_their_length() -> None:
    assert await batches_of(["ab", "c", "def"], max_batch_bytes=3) == [
        ["ab", "c"],
        ["def"],
    ]


async def test_items_that_count_for_nothing_fill_no_batch() -> None:
    items = of(100, 0, 0, 0, 1)
    assert sizes(await batches_of(items, max_batch_bytes=100)) == [[100, 0, 0, 0], [1]]


async def test_what_comes_from_several_partitions_is_cut_as_well() -> None:
    handler = RecordingHandler[bytes]()
    config = BatchQueueConfig[bytes](
        consumer=handler,
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, partitions: item[0] % partitions,
        max_batch_bytes=100,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([bytes([n]) * 40 for n in range(9)])
    assert [len(batch) for batch in handler.batches] == [2, 2, 2, 2, 1]
    for partition in range(3):
        own = [item[0] for item in handler.items if item[0] % 3 == partition]
        assert own == sorted(own)


class TestOfOneHandler:
    async def test_it_may_be_smaller_or_larger_than_the_queues(self) -> None:
        small, large = RecordingHandler[bytes](), RecordingHandler[str]()
        config = BatchQueueConfig[Any](
            max_batch_bytes=10, partitions=PartitionPolicy.fixed(2)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(bytes, small, max_batch_bytes=5)
            queue.add_handler(str, large, max_batch_bytes=20)
            await queue.produce_many([b"abc", "x" * 8, b"def", "y" * 8])
        assert small.batches == [[b"abc"], [b"def"]]
        assert large.batches == [["x" * 8, "y" * 8]]

    async def test_it_needs_a_queue_that_counts_sizes(self) -> None:
        async with BatchQueue[Any]("q") as queue:
            with pytest.raises(ValueError, match="max_batch_bytes must be None"):
                queue.add_handler(bytes, RecordingHandler[bytes](), max_batch_bytes=5)
            assert queue.stats().handlers == ()

    async def test_size_of_alone_makes_it_such_a_queue(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](size_of=lambda item: item)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler, max_batch_bytes=5)
            await queue.produce_many([2, 2, 2, 2])
        assert handler.batches == [[2, 2], [2, 2]]


@virtual
class TestLinger:
    async def test_a_batch_that_is_full_is_due_at_once(self) -> None:
        handler = RecordingHandler[bytes]()
        config = BatchQueueConfig[bytes](
            consumer=handler, linger=60.0, max_batch_bytes=100, measure_handlers=True
        )
        async with BatchQueue("q", config) as queue:
            for item in of(30, 30, 39):
                assert await queue.produce(item)
            await asyncio.sleep(1)
            assert handler.batches == []
            assert queue.stats().waiting_bytes == 99
            assert queue.produce_nowait(b"x")
            await asyncio.sleep(0.01)
            assert sizes(handler.batches) == [[30, 30, 39, 1]]
            assert await queue.produce_many(of(50, 50, 30)) == 3
            await asyncio.sleep(0.01)
            assert sizes(handler.batches)[1:] == [[50, 50]]
            await asyncio.sleep(61)
            assert sizes(handler.batches)[2:] == [[30]]
            (stats,) = queue.stats().handlers
            assert stats.cuts is not None
            assert (stats.cuts.full, stats.cuts.linger) == (2, 1)

    async def test_of_one_handler_too(self) -> None:
        handler = RecordingHandler[bytes]()
        config = BatchQueueConfig[bytes](linger=60.0, size_of=len)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(bytes, handler, max_batch_bytes=10)
            await queue.produce(b"x" * 9)
            await asyncio.sleep(1)
            assert handler.batches == []
            await queue.produce(b"x")
            await asyncio.sleep(0.01)
            assert sizes(handler.batches) == [[9, 1]]


class TestRetries:
    async def test_what_is_tried_again_stays_within_the_bound(self) -> None:
        seen: list[list[bytes]] = []

        def consume(batch: list[bytes]) -> None:
            seen.append(batch)
            if len(seen) == 1:
                raise PartialFailure([1])
            if len(batch) > 1 and len(seen) < 5:
                raise ValueError

        config = BatchQueueConfig[bytes](
            consumer=consume,
            max_batch_bytes=100,
            retry=Retry(attempts=2, wait_initial=0.001, split=True),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(of(50, 50, 20, 80, 100))
        assert sizes(seen)[:2] == [[50, 50], [50]]
        assert sizes(seen)[-1] == [100]
        assert all(sum(map(len, batch)) <= 100 for batch in seen)
        assert queue.stats().handled == 5
