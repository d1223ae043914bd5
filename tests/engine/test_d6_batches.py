"""D6: what a handler gets in one call."""

import asyncio

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    round_robin,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts, check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


async def test_one_call_per_cycle_with_everything_of_all_partitions() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(4), selector=round_robin, consumer=handler
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(-1)
        await handler.entered()
        await queue.produce_many(range(20))
        gate.set()
    assert handler.batches[0] == [-1]
    assert sorted(handler.batches[1]) == list(range(20))
    assert len(handler.batches) == 2


async def test_types_are_sorted_apart_and_each_handler_is_called_once() -> None:
    gate = asyncio.Event()
    first = RecordingHandler[int](gate=gate)
    strings, floats = RecordingHandler[str](), RecordingHandler[float]()
    async with BatchQueue[object]("q") as queue:
        queue.add_handler(int, first)
        queue.add_handler(str, strings)
        queue.add_handler(float, floats)
        await queue.produce(0)
        await first.entered()
        await queue.produce_many(["a", 1.0, "b", 1, 2.0, "c", 2])
        gate.set()
    assert first.batches == [[0], [1, 2]]
    assert strings.batches == [["a", "b", "c"]]
    assert floats.batches == [[1.0, 2.0]]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("max_batch", [1, 2, 7])
async def test_no_batch_exceeds_max_batch(partitions: int, max_batch: int) -> None:
    handler = RecordingHandler[int]()
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(partitions),
        selector=round_robin,
        consumer=handler,
        max_batch=max_batch,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(100))
    assert sorted(handler.items) == list(range(100))
    assert max(map(len, handler.batches)) == max_batch


async def test_a_split_keeps_each_partitions_order() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, partitions: item % partitions,
        consumer=handler,
        max_batch=4,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(50))
        gate.set()
    for index in range(3):
        mine = [item for item in handler.items if item % 3 == index]
        assert mine == sorted(mine)


async def test_a_failed_piece_fails_alone() -> None:
    handler = RecordingHandler[int](
        fail_when=lambda batch: ValueError() if 4 in batch else None
    )
    failed: list[list[int]] = []
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, partitions: item % partitions,
        consumer=handler,
        max_batch=2,
        on_error=lambda batch, _: failed.append(batch),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(8))
    stats = check_settled(queue)
    assert (stats.handled, stats.failed) == (6, 2)
    assert len(failed) == 1
    assert 4 in failed[0]


class TestTheList:
    async def test_counts_do_not_follow_what_the_handler_does_to_it(self) -> None:
        kept: list[list[int]] = []

        def consume(batch: list[int]) -> None:
            kept.append(batch)
            if batch[0] % 2:
                batch.clear()
            else:
                batch.extend([7, 8, 9])

        async with BatchQueue("q", BatchQueueConfig[int](max_batch=3)) as queue:
            queue.add_handler(int, consume)
            await queue.produce_many(range(12))
        assert check_settled(queue).handled == 12
        assert len({id(batch) for batch in kept}) == len(kept)

    async def test_each_attempt_gets_a_fresh_one(self) -> None:
        seen: list[list[int]] = []

        def consume(batch: list[int]) -> None:
            seen.append(list(batch))
            batch.clear()
            if len(seen) < 3:
                raise ValueError

        retry = Retry(attempts=3, wait_initial=0.001)
        async with BatchQueue("q", BatchQueueConfig[int](retry=retry)) as queue:
            queue.add_handler(int, consume)
            await queue.produce_many([1, 2, 3])
            await queue.flush()
        assert seen == [[1, 2, 3]] * 3
        assert check_settled(queue).handled == 3

    async def test_on_error_gets_all_items_whatever_the_handler_left(self) -> None:
        failed: list[list[int]] = []

        def consume(batch: list[int]) -> None:
            batch.pop()
            raise ValueError

        async def on_error(batch: list[int], error: BaseException) -> None:
            failed.append(list(batch))
            batch.clear()

        async with BatchQueue("q", BatchQueueConfig[int](on_error=on_error)) as queue:
            queue.add_handler(int, consume)
            await queue.produce_many([1, 2, 3])
        assert failed == [[1, 2, 3]]
        assert check_settled(queue).failed == 3

    async def test_what_a_handler_keeps_does_not_change_later(self) -> None:
        kept: list[list[int]] = []
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, kept.append)
            for item in range(5):
                await queue.produce(item)
                await queue.flush()
        assert kept == [[0], [1], [2], [3], [4]]


class TestParkedForARetry:
    async def test_other_handlers_go_on(self) -> None:
        failing = RecordingHandler[int](fail_when=lambda _: ValueError())
        other = RecordingHandler[str]()
        config = BatchQueueConfig[object](
            retry=Retry(attempts=2, wait_initial=1000.0, wait_max=1000.0),
            partitions=PartitionPolicy.adaptive(),
        )
        queue = BatchQueue("q", config)
        await queue.start()
        queue.add_handler(int, failing)
        queue.add_handler(str, other)
        await queue.produce(1)
        await failing.entered()
        for item in "abc":
            await queue.produce(item)
            await until(lambda: item in other.handled)  # noqa: B023
        check_accounts(queue)
        assert await queue.shutdown(timeout=0.01) == [1]

    async def test_later_items_of_its_partition_wait_behind_it(self) -> None:
        errors = [ValueError("once")]
        handler = RecordingHandler[int](
            fail_when=lambda _: errors.pop() if errors else None
        )
        retry = Retry(attempts=2, wait_initial=0.02)
        async with BatchQueue("q", BatchQueueConfig[int](retry=retry)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            await queue.produce(2)
            await turns()
        assert handler.handled == [1, 2]
        check_settled(queue)

    async def test_at_shutdown_the_attempt_still_takes_place(self) -> None:
        errors = [ValueError("once")]
        handler = RecordingHandler[int](
            fail_when=lambda _: errors.pop() if errors else None
        )
        retry = Retry(attempts=2, wait_initial=0.02)
        async with BatchQueue("q", BatchQueueConfig[int](retry=retry)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
        assert handler.handled == [1]
        assert handler.calls[-1] == "on_close"


async def test_two_drain_tasks_have_a_batch_each() -> None:
    """They overlap waiting: one partition's slow batch does not delay the other's."""
    handler = RecordingHandler[int](gate=asyncio.Event())
    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, partitions: item % partitions,
        consumer=handler,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([0, 1])
        await until(lambda: len(handler.batches) == 2)
        assert handler.max_concurrency == 2
        assert handler.gate is not None
        handler.gate.set()
