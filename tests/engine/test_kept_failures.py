"""What failures keep alive until somebody flushes, which may be never."""

import asyncio
import gc
import pickle
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    Failure,
    OmittedItem,
    WhenFull,
)
from batchqueue_async._engine.partitions.kept_failures import (
    estimated_size,
    forget_locals,
)
from batchqueue_async._policies.errors import KEPT_BYTES
from tests.engine.until import until


class Row:
    """An item with something in it."""

    def __init__(self, size: int) -> None:
        self.cells = {"payload": [bytes(size)]}


def fail(batch: list[Any]) -> None:
    local = list(batch)
    raise ValueError(len(local))


async def fail_awaited(batch: list[Any]) -> None:
    await asyncio.sleep(0)
    fail(batch)


async def failures_of(
    items: list[Any],
    handler: Any = fail,  # noqa: ANN401
    **settings: Any,  # noqa: ANN401
) -> tuple[Failure, ...]:
    async with BatchQueue("q", BatchQueueConfig[Any](**settings)) as queue:
        queue.add_handler(object, handler)
        assert await queue.produce_many(items) == len(items)
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
        assert caught.value.count == len(items)
    return caught.value.failures


@pytest.mark.parametrize("handler", [fail, fail_awaited])
@pytest.mark.parametrize("most", [1, 10, None])
async def test_nobody_flushes_and_no_more_than_a_megabyte_stays(
    handler: Any,  # noqa: ANN401
    most: int | None,
) -> None:
    """Neither by the items, nor by the frames in which they failed."""
    async with BatchQueue("q", BatchQueueConfig[Any](max_batch=most)) as queue:
        queue.add_handler(Row, handler)
        rows = [Row(100_000) for _ in range(200)]
        references = [weakref.ref(each) for each in rows]
        assert await queue.produce_many(rows) == 200
        rows.clear()
        await until(lambda: queue.stats().failed == 200)
        await asyncio.sleep(0.01)
        gc.collect()
        left = sum(each() is not None for each in references)
        assert left <= KEPT_BYTES // 100_000


async def test_small_items_are_there_whatever_comes_between_them() -> None:
    small = [f"row {number}" for number in range(50)]
    large = [Row(2 * KEPT_BYTES) for _ in range(50)]
    mixed = [each for pair in zip(small, large, strict=True) for each in pair]
    failures = await failures_of(mixed)
    assert [each.item for each in failures[::2]] == small
    assert [each.item for each in failures[1::2]] == [OmittedItem("Row")] * 50
    assert "<Row, too large to be kept>" in str(failures[1])
    assert pickle.loads(pickle.dumps(failures[1].item)) == failures[1].item


async def test_after_a_flush_there_is_room_again() -> None:
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        queue.add_handler(object, fail)
        for _ in range(3):
            item = Row(KEPT_BYTES // 2)
            assert await queue.produce_many([item, Row(KEPT_BYTES)]) == 2
            with pytest.raises(DeliveryError) as caught:
                await queue.flush()
            assert [each.item for each in caught.value.failures] == [
                item,
                OmittedItem("Row"),
            ]


async def test_what_was_dropped_is_bounded_too() -> None:
    async with BatchQueue(
        "q", BatchQueueConfig[Any](buffer_size=1, when_full=WhenFull.DROP_OLDEST)
    ) as queue:
        rows = [Row(KEPT_BYTES) for _ in range(20)]
        references = [weakref.ref(each) for each in rows]
        assert await queue.produce_many(rows) == 20
        rows.clear()
        gc.collect()
        assert sum(each() is not None for each in references) <= 1


async def test_an_error_that_is_too_large_leaves_its_text() -> None:
    def fail_with_all(batch: list[Any]) -> None:
        raise ValueError(bytes(2 * KEPT_BYTES), batch)

    (failure,) = await failures_of(["row"], fail_with_all)
    assert failure.item == "row"
    assert isinstance(failure.error, BatchQueueError)
    assert "ValueError" in str(failure.error)
    assert len(str(failure.error)) < 1000


async def test_an_error_still_says_where_it_was_raised() -> None:
    (failure,) = await failures_of(["row"], fail_awaited)
    assert isinstance(failure.error, ValueError)
    names, trace = [], failure.error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        assert "batch" not in trace.tb_frame.f_locals
        trace = trace.tb_next
    assert names[-2:] == ["fail_awaited", "fail"]


def raise_key_error() -> None:
    raise KeyError


def generate() -> Iterator[Any]:
    while True:
        try:
            raise_key_error()
        except KeyError as error:
            yield error


async def generate_awaited() -> AsyncIterator[Any]:
    for each in generate():
        try:
            raise each
        except KeyError as error:
            yield error


async def serve(jobs: asyncio.Queue[asyncio.Future[None]]) -> None:
    """As a pool's worker: what its job raised is somebody else's."""
    while True:
        job = await jobs.get()
        try:
            raise_key_error()
        except KeyError as error:
            job.set_exception(error)


async def test_coroutines_and_generators_that_go_on_are_left_alone() -> None:
    """An error has their frames in its traceback; `clear_frames` would end them."""
    jobs: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
    worker = asyncio.create_task(serve(jobs))
    plain, awaited = generate(), generate_awaited()

    async def handle(batch: list[int]) -> None:
        job: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if batch[0] % 3 == 0:
            await jobs.put(job)
            await job
        raise next(plain) if batch[0] % 3 == 1 else await anext(awaited)

    failures = await failures_of(list(range(9)), handle, max_batch=1)
    assert [type(each.error) for each in failures] == [KeyError] * 9
    assert not worker.done()
    worker.cancel()
    await asyncio.wait({worker})
    await awaited.aclose()  # type: ignore[attr-defined]


def test_errors_behind_an_error_let_go_of_their_frames_too() -> None:
    row = Row(1)
    reference = weakref.ref(row)
    try:
        try:
            fail([row])
        except ValueError as error:
            message = "all"
            raise ExceptionGroup(message, [error, OSError()]) from error
    except ExceptionGroup as group:
        kept = group
    del row
    gc.collect()
    assert reference() is not None
    forget_locals(kept)
    gc.collect()
    assert reference() is None


def test_an_estimate_finds_what_is_an_items_own_and_ends() -> None:
    assert 10_000 < estimated_size(Row(10_000), KEPT_BYTES) < 11_000
    assert estimated_size(3, KEPT_BYTES) < 100
    assert estimated_size(Row, KEPT_BYTES) < 20_000, "a class is the program's"
    assert estimated_size([0] * 10**6, KEPT_BYTES) > KEPT_BYTES
    endless: list[Any] = []
    endless.append(endless)
    assert estimated_size(endless, KEPT_BYTES) < 1_000

    class Odd:
        def __sizeof__(self) -> int:
            raise RuntimeError

    assert estimated_size([Odd()], KEPT_BYTES) < 10_000
