"""D2: what an arrival costs does not grow with what waits already."""

import asyncio
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartitionPolicy,
    by_key,
    fair_by,
)
from batchqueue_async._engine.draining.linger_and_nap import Nap
from batchqueue_async._engine.partitions.ages import MOST_SAMPLES, Ages
from batchqueue_async._engine.queue import parts_of
from tests.engine.until import turns
from tests.support.meddling import before_each_line_of


def lines_run(arrivals: int, *, on_threads: bool) -> int:
    """How many lines are run for as many items that linger, with a look after each."""
    ages, lines, times = Ages(), count(), count(1.0)
    ages.clock = lambda: None if on_threads else next(times)
    with before_each_line_of(Ages.note, Ages.oldest, act=lambda: next(lines)):
        for position in range(arrivals):
            ages.note(position)
            assert ages.oldest(0, next(times)) <= 2.0
    return next(lines)


def test_the_oldest_ones_age_is_known_without_a_look_at_all_that_came_later() -> None:
    """Else a burst of 10,000 items that have sizes held the loop up for seconds."""
    for on_threads in (False, True):
        few = lines_run(100, on_threads=on_threads)
        many = lines_run(1000, on_threads=on_threads)
        assert many < 11 * few


@pytest.mark.parametrize(
    "settings, makes_marks",
    [({"buffer_bytes": 10_000}, False), ({"audit": True}, True)],
)
async def test_a_queue_at_rest_keeps_no_mark_of_each_item(
    settings: dict[str, Any],
    makes_marks: bool,  # noqa: FBT001 - of the parameters
) -> None:
    """A flush, or a full batch, takes them without a look at the oldest one's age."""
    config = BatchQueueConfig[bytes](consumer=lambda _: None, linger=5.0, **settings)
    async with BatchQueue("q", config) as queue:
        for _ in range(2 * MOST_SAMPLES):
            assert queue.produce_nowait(b"x")
            await asyncio.sleep(0.001)
        (partition,) = parts_of(queue).partitions
        assert (len(partition.ages._marks) > MOST_SAMPLES) is makes_marks
        await queue.flush()
        assert len(partition.ages._marks) <= MOST_SAMPLES


@pytest.mark.parametrize("verb", ["produce_nowait", "offer"])
async def test_items_with_sizes_wake_nobody_while_they_linger(verb: str) -> None:
    """Only the first one does, and the one that makes a batch due."""
    batches: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()

    def consume(batch: list[bytes]) -> None:
        batches.append((round(loop.time() - began, 2), len(batch)))

    config = BatchQueueConfig[bytes](
        consumer=consume, linger=5.0, max_batch_bytes=1000, buffer_bytes=10_000
    )
    async with BatchQueue("q", config) as queue:
        await turns(3)
        began = loop.time()
        produce = getattr(queue, verb)
        with (
            patch.object(
                loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe
            ) as woken,
            patch.object(Nap, "notify", autospec=True, side_effect=Nap.notify) as told,
        ):
            for _ in range(99):
                assert produce(b"x" * 10)
                await turns(2)
            assert told.call_count <= 3
            assert woken.call_count <= 2
        assert batches == []
        await asyncio.sleep(4.5)
        assert produce(b"x" * 10)
        await turns(5)
        assert batches == [(4.5, 100)]
        began = loop.time()
        assert produce(b"x")
        await asyncio.sleep(4.0)
        assert produce(b"x")
        await asyncio.sleep(6.0)
        assert batches[1:] == [(5.0, 2)]


@pytest.mark.parametrize("verb", ["produce_nowait", "offer"])
@pytest.mark.parametrize(
    "selector, most_told", [(by_key, 4), (fair_by, 2 * 10)], ids=["by_key", "fair"]
)
async def test_items_that_a_selector_places_wake_nobody_while_they_linger(
    selector: Any,  # noqa: ANN401 - one of two
    most_told: int,
    verb: str,
) -> None:
    """Once for each partition, or each key and once more, not for each item."""
    batches: list[list[int]] = []
    config = BatchQueueConfig[int](
        consumer=batches.append,
        linger=5.0,
        max_batch=500,
        selector=selector(lambda number: number % 10),
        partitions=PartitionPolicy.fixed(4),
    )
    async with BatchQueue("q", config) as queue:
        await turns(3)
        produce = getattr(queue, verb)
        with patch.object(Nap, "notify", autospec=True, side_effect=Nap.notify) as told:
            for number in range(400):
                assert produce(number)
                await turns(2)
        assert told.call_count <= most_told
        await asyncio.sleep(4.9)
        assert batches == []
        await asyncio.sleep(0.2)
        assert [len(batch) for batch in batches] == [400]


@pytest.mark.parametrize(
    "settings", [{"buffer_bytes": 1000}, {"selector": fair_by(lambda _: "all")}]
)
async def test_a_telling_that_was_struck_is_left_to_the_next_arrival(
    settings: dict[str, Any],
) -> None:
    handled: list[bytes] = []
    config = BatchQueueConfig[bytes](consumer=handled.extend, linger=5.0, **settings)
    async with BatchQueue("q", config) as queue:
        await turns(3)
        assert queue.produce_nowait(b"a")
        with patch.object(Nap, "notify", side_effect=MemoryError) as told:
            for _ in range(2):
                with pytest.raises(MemoryError):
                    queue.produce_nowait(b"b")
            assert told.call_count == 2
        assert queue.produce_nowait(b"c")
        await asyncio.sleep(5.1)
        assert handled == [b"a", b"c"]
