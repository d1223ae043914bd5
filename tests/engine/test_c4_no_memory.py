"""C4 where memory ends: no drain task dies, and the account stays right."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    PartitionPolicy,
    Retry,
)
from batchqueue_async._engine.draining import batch as grouping
from batchqueue_async._engine.draining import delivery, failed_batch
from batchqueue_async._engine.draining.batch import Batch, Grouping
from batchqueue_async._engine.partitions import partition
from batchqueue_async._engine.partitions.kept_failures import FailureLogs
from batchqueue_async._engine.partitions.partition import Partition
from tests.engine.until import until
from tests.support.oracle import check_settled

LIMIT = 30.0


def no_memory(*_: object, **__: object) -> Any:  # noqa: ANN401
    raise MemoryError


class Uncopied(list[Any]):
    """A batch of which there is no memory for a copy."""

    def copy(self) -> list[Any]:
        raise MemoryError


class Told:
    """What `on_error` got."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[Any], BaseException]] = []

    def __call__(self, batch: list[Any], error: BaseException) -> None:
        self.batches.append((list(batch), error))
        # It may do with it what it likes.
        batch.clear()


def fails_once() -> Callable[[list[Any]], None]:
    failed: list[int] = []

    def consume(batch: list[Any]) -> None:
        if not failed:
            failed.append(1)
            raise ValueError(batch[0])

    return consume


async def test_a_failed_batch_that_cannot_be_copied_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told()
    monkeypatch.setattr(failed_batch, "list", no_memory, raising=False)
    config = BatchQueueConfig[int](consumer=fails_once(), on_error=told)
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(200)) == 200
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
        assert caught.value.count == 200
        assert caught.value.failures[0].item == 0
        assert await queue.produce(7)
        await queue.flush()
    ((batch, error),) = told.batches
    assert batch == list(range(200))
    assert isinstance(error, ValueError)
    stats = check_settled(queue)
    assert (stats.failed, stats.handled) == (200, 1)


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_batch_that_cannot_be_copied_for_its_handler_fails(
    attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was never given to the handler; `on_error` gets it with the MemoryError."""
    told, handled = Told(), list[int]()
    was = Batch.__init__

    def uncopied(self: Batch[Any], *arguments: Any) -> None:  # noqa: ANN401
        was(self, *arguments)
        if self.items[0] == 0:
            self.items = Uncopied(self.items)

    monkeypatch.setattr(Batch, "__init__", uncopied)
    config = BatchQueueConfig[int](
        consumer=handled.extend, on_error=told, retry=Retry(attempts)
    )
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(5)) == 5
        await until(lambda: told.batches)
        assert await queue.produce(7)
        with pytest.raises(DeliveryError):
            await queue.flush()
    assert handled == [7]
    ((batch, error),) = told.batches
    assert batch == list(range(5))
    assert isinstance(error, MemoryError)
    assert check_settled(queue).failed == 5


async def test_a_failure_that_cannot_be_noted_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    monkeypatch.setattr(FailureLogs, "add", no_memory)
    config = BatchQueueConfig[int](consumer=fails_once(), on_error=told)
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(5)) == 5
        await queue.flush()
        assert await queue.produce(7)
        await queue.flush()
        monkeypatch.undo()
    assert len(told.batches) == 1
    assert check_settled(queue).failed == 5
    assert any("5 items" in each.getMessage() for each in caplog.records)


async def test_a_failed_batch_that_cannot_be_split_fails_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told()
    monkeypatch.setattr(Batch, "pieces", no_memory)
    config = BatchQueueConfig[int](
        consumer=fails_once(), on_error=told, retry=Retry(1, split=True)
    )
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        assert await queue.produce_many(range(6)) == 6
        await until(lambda: told.batches)
        assert await queue.produce(7)
        monkeypatch.undo()
    assert told.batches[0][0] == list(range(6))
    stats = check_settled(queue)
    assert (stats.failed, stats.handled) == (6, 1)


@contextmanager
def once(owner: Any, name: str, times: int = 1) -> Iterator[list[int]]:  # noqa: ANN401
    """Let the function run out of memory, `times` times."""
    calls: list[int] = []
    real = getattr(owner, name)

    def function(*arguments: Any) -> Any:  # noqa: ANN401
        calls.append(1)
        if len(calls) <= times:
            raise MemoryError
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, function)
        yield calls


@pytest.mark.parametrize(
    "owner, name, times",
    [
        (grouping, "have_one_type", 1),
        (Grouping, "_by_handler", 1),
        (Batch, "add", 1),
        (Batch, "pieces", 1),
        (Partition, "_remove", 1),
        (Partition, "_remove", 3),
        (delivery, "fetch", 1),
    ],
)
async def test_what_was_taken_is_not_lost_where_memory_ends_while_it_is_sorted(
    owner: Any,  # noqa: ANN401
    name: str,
    times: int,
) -> None:
    assert partition.Partition is Partition
    handled: list[Any] = []
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(3),
        max_batch=20,
        selector=lambda item, count: hash(item) % count,
    )
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        queue.add_handler(int, handled.extend)
        queue.add_handler(str, handled.extend)
        sent = [*range(10), *map(str, range(10))]
        with once(owner, name, times):
            for item in sent:
                assert queue.produce_nowait(item)
            await queue.flush()
    assert sorted(map(str, handled)) == sorted(map(str, sent))
    assert check_settled(queue).handled == len(sent)


async def test_what_cannot_be_sorted_at_all_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, handled = Told(), list[Any]()
    config = BatchQueueConfig[Any](on_error=told)
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        queue.add_handler(int, handled.extend)
        queue.add_handler(str, handled.extend)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Grouping, "_by_handler", no_memory)
            patch.setattr(type(queue._parts.handlers), "of_identical", no_memory)
            assert await queue.produce_many([1, "a"]) == 2
            await until(lambda: told.batches)
        assert await queue.produce_many([2, "b"]) == 2
        with pytest.raises(DeliveryError):
            await queue.flush()
    assert told.batches[0][0] == [1, "a"]
    assert handled == [2, "b"]
    assert check_settled(queue).failed == 2


class Tight(list[Any]):
    """Items of a partition that has no memory for one more than three."""

    def append(self, item: object) -> None:
        if len(self) == 3:
            raise MemoryError
        super().append(item)


async def test_what_there_was_no_memory_for_is_not_counted_as_accepted() -> None:
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(2),
        selector=lambda _, __: 0,
        consumer=lambda _: None,
    )
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        queue._parts.placement.partitions[0].items = Tight()
        with pytest.raises(MemoryError) as raised:
            await queue.produce_many([1, 2, 3, 4, 5])
        assert vars(raised.value)["accepted"] == 3
    assert check_settled(queue).handled == 3
