"""C5: an item is measured once, when it is produced, and by a number."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    ItemTooLarge,
    PartitionPolicy,
    WhenFull,
)
from batchqueue_async._engine.stats import overview
from tests.engine.every_loop import every_loop
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


def config_for(
    size_of: Callable[[Any], Any] | None,
    **settings: Any,  # noqa: ANN401  # of BatchQueueConfig
) -> BatchQueueConfig[Any]:
    return BatchQueueConfig[Any](
        consumer=RecordingHandler[Any](), size_of=size_of, **settings
    )


@pytest.mark.parametrize("audit", [False, True])
@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("partitions", [1, 3])
async def test_each_item_is_measured_once(
    when_full: WhenFull, partitions: int, *, audit: bool
) -> None:
    measured: list[int] = []

    def size_of(item: int) -> int:
        measured.append(item)
        return 1

    config = config_for(
        size_of,
        buffer_bytes=3,
        max_batch_bytes=2,
        when_full=when_full,
        audit=audit,
        partitions=PartitionPolicy.fixed(partitions),
        selector=lambda item, count: item % count,
    )
    async with BatchQueue("q", config) as queue:
        for item in range(10):
            await queue.produce(item)
        for item in range(10, 20):
            queue.produce_nowait(item)
        for item in range(20, 30):
            queue.offer(item)
        await queue.produce_many(range(30, 50))
    assert measured == list(range(50))
    check_settled(queue)
    assert queue.stats().unaccounted == 0


@pytest.mark.parametrize(
    "answer, error, told",
    [
        (-1, ValueError, ">= 0, got -1"),
        (-0.5, ValueError, ">= 0, got -0.5"),
        (float("nan"), ValueError, "finite number >= 0, got nan"),
        (float("inf"), ValueError, "finite number >= 0, got inf"),
        ("12", TypeError, "a finite number >= 0, got a str"),
        (None, TypeError, "a finite number >= 0, got None"),
        (True, TypeError, "a finite number >= 0, got a bool"),
    ],
)
async def test_a_size_that_is_none_is_refused(
    answer: object, error: type[Exception], told: str
) -> None:
    config = config_for(lambda _: answer, max_batch_bytes=100)
    async with BatchQueue("q", config) as queue:
        for call in (queue.produce_nowait, queue.offer):
            with pytest.raises(error, match=rf"size_of\(item\) must be .*{told}"):
                call("item")
        with pytest.raises(error, match="size_of"):
            await queue.produce("item")
    assert queue.stats().accepted == queue.stats().rejected == 0


async def test_whole_numbers_of_other_libraries_are_sizes() -> None:
    class Whole:
        def __index__(self) -> int:
            return 3

    async with BatchQueue("q", config_for(lambda _: Whole())) as queue:
        assert queue.produce_nowait("item")
        assert queue.stats().waiting_bytes == 3
        assert overview(queue._parts, partitions=1).stats.waiting_bytes == 3


async def test_what_size_of_raises_comes_out_and_says_for_what() -> None:
    def size_of(item: dict[str, int]) -> int:
        return item["size"]

    async with BatchQueue("q", config_for(size_of)) as queue:
        with pytest.raises(KeyError) as caught:
            await queue.produce({})
    assert caught.value.__notes__ == ["size_of raised this for a dict"]
    assert queue.stats().accepted == 0


@dataclass(frozen=True, eq=False)
class Unsized(Exception):
    """No note can be added to it."""

    item: object


async def test_what_takes_no_note_comes_out_as_it_is() -> None:
    def size_of(item: str) -> int:
        raise Unsized(item)

    async with BatchQueue("q", config_for(size_of)) as queue:
        with pytest.raises(Unsized):
            await queue.produce("a")
    assert queue.stats().accepted == 0


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("form", [list, iter])
async def test_a_bulk_call_accepts_what_comes_before(
    form: Callable[[Any], Any], partitions: int
) -> None:
    config = config_for(
        None,
        buffer_bytes=10,
        partitions=PartitionPolicy.fixed(partitions),
        selector=lambda item, count: len(item) % count,
    )
    async with BatchQueue("q", config) as queue:
        with pytest.raises(TypeError) as caught:
            await queue.produce_many(form([b"a" * 9, b"bb", "cc", 3, b"d"]))
        assert caught.value.accepted == 3  # type: ignore[attr-defined]
        with pytest.raises(ItemTooLarge) as large:
            await queue.produce_many(form([b"a" * 7, b"e" * 11]))
        assert large.value.accepted == 1  # type: ignore[attr-defined]
    assert queue.stats().handled == 4


async def test_without_size_of_only_bytes_and_texts_have_one() -> None:
    async with BatchQueue("q", config_for(None, buffer_bytes=10)) as queue:
        assert await queue.produce_many([b"abc", "de", bytearray(3)]) == 3
        assert queue.stats().waiting_bytes == 8
        with pytest.raises(TypeError, match=r"size_of must be given .* and a list"):
            await queue.produce([1])


@pytest.mark.parametrize("when_full", list(WhenFull))
async def test_an_item_that_can_never_fit_raises(when_full: WhenFull) -> None:
    config = config_for(None, buffer_bytes=10, when_full=when_full)
    async with BatchQueue("q", config) as queue:
        for call in (queue.produce_nowait, queue.offer):
            with pytest.raises(ItemTooLarge, match="<= buffer_bytes, which is 10, got"):
                call(b"x" * 11)
        with pytest.raises(ItemTooLarge) as caught:
            await queue.produce(b"x" * 12)
        assert (caught.value.size, caught.value.buffer_bytes) == (12, 10)
        assert isinstance(caught.value, BatchQueueError)
        assert queue.produce_nowait(b"x" * 10)
    assert queue.stats().accepted == 1


async def test_sums_of_fractions_do_not_drift() -> None:
    """Else an item that just fits would wait for ever."""
    config = config_for(lambda item: item / 10, buffer_bytes=1.0)
    async with BatchQueue("q", config) as queue:
        for _ in range(50):
            assert await queue.produce_many([1, 2, 3]) == 3
            assert queue.stats().waiting_bytes == pytest.approx(0.6)
            await queue.flush()
            budget = queue._parts.byte_budget
            assert budget is not None
            assert budget.used == Fraction(0)
            assert queue.produce_nowait(10)
            await queue.flush()


async def test_after_the_end_nothing_is_measured() -> None:
    queue = BatchQueue("q", config_for(None, buffer_bytes=1))
    async with queue:
        pass
    assert not await queue.produce(b"too large")
    assert not queue.produce_nowait(b"too large")
    assert not queue.offer(b"too large")
    assert await queue.produce_many([b"too large"]) == 0
    assert queue.stats().rejected == 4


async def test_queues_without_sizes_have_none_to_show() -> None:
    async with BatchQueue[bytes]("q") as queue:
        stats = queue.stats()
        assert (stats.waiting_bytes, stats.in_flight_bytes) == (None, None)
