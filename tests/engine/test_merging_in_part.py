"""Merging: what its `then` names as failed is kept; nothing else is handed on twice."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    Merging,
    PartialFailure,
    Retry,
    RetryAfter,
)
from tests.support.oracle import check_settled

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])

Count = tuple[str, int]


def added(old: Count, new: Count) -> Count:
    return old[0], old[1] + new[1]


class Bulk:
    """A server that adds each count up, but for those of keys that it refuses."""

    def __init__(self, refused: Iterable[str] = (), pause: float | None = None) -> None:
        self.refused, self.pause = {*refused}, pause
        self.total: Counter[str] = Counter()
        self.times: list[float] = []

    async def __call__(self, counts: list[Count]) -> None:
        self.times.append(asyncio.get_running_loop().time())
        failed = []
        for position, (key, count) in enumerate(counts):
            if key in self.refused:
                failed.append(position)
            else:
                self.total[key] += count
        if failed:
            raise PartialFailure(failed, retry_after=self.pause)


def merging(then: Any, **settings: Any) -> Merging[Count]:  # noqa: ANN401
    return Merging[Count](key=itemgetter(0), merge=added, then=then, **settings)


@pytest.mark.parametrize("every", [None, 0.5, 5.0])
@pytest.mark.parametrize("at_most", [None, 3, 100])
async def test_each_item_is_written_once(
    every: float | None, at_most: int | None
) -> None:
    server = Bulk("b")
    handler = merging(server, every=every, at_most=at_most)
    config = BatchQueueConfig[Count](consumer=handler)
    async with BatchQueue("q", config) as queue:
        for _ in range(20):
            await queue.produce_many([("a", 1), ("b", 1), ("c", 1)])
            await asyncio.sleep(0.3)
        await asyncio.sleep(10)
        assert server.total == {"a": 20, "c": 20}
        assert handler.held == 1
        with pytest.raises(DeliveryError, match="1 item failed"):
            await queue.flush()
        server.refused.clear()
        await queue.flush()
        assert server.total == {"a": 20, "b": 20, "c": 20}
    assert check_settled(queue).failed == 0


async def test_nothing_of_a_batch_that_found_no_room_counts_as_handled() -> None:
    """Positions of what was handed on were taken for those of the batch."""
    server, failed = Bulk("ab"), list[Count]()
    config = BatchQueueConfig[Count](
        consumer=merging(server, every=3600, at_most=2),
        on_error=lambda batch, _: failed.extend(batch),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([("a", 1), ("b", 1)])
        await queue.produce_many([("c", 1), ("d", 1), ("e", 1)])
        await asyncio.sleep(10)
        await queue.produce_many([("c", 1), ("d", 1), ("e", 1)])
        await asyncio.sleep(10)
        refused = len(failed)
        assert failed == [("c", 1), ("d", 1), ("e", 1)] * (refused // 3)
        assert queue.stats().failed == refused > 0
        server.refused.clear()
    assert server.total.total() + refused == 8
    check_settled(queue)


async def test_it_is_tried_again_where_retry_says_so() -> None:
    server = Bulk("a", pause=60.0)
    config = BatchQueueConfig[Count](
        consumer=merging(server, every=3600, at_most=1),
        retry=Retry(attempts=5, retry_on=(OSError,)),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(("a", 1))
        await asyncio.sleep(1)
        await queue.produce(("b", 1))
        await asyncio.sleep(30)
        server.refused.clear()
        await queue.flush()
    assert server.total == {"a": 1, "b": 1}
    assert check_settled(queue).failed == 0


@pytest.mark.parametrize("error", [RetryAfter(60), PartialFailure([0], retry_after=60)])
async def test_it_waits_as_long_as_it_is_asked_to(error: Exception) -> None:
    times: list[float] = []

    def then(_: list[Count]) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 4:
            raise error

    async with BatchQueue("q", BatchQueueConfig(consumer=merging(then))) as queue:
        await queue.produce(("a", 1))
        await asyncio.sleep(300)
    assert len(times) == 4
    waits = [late - early for early, late in pairwise(times)]
    assert all(60 <= wait < 62 for wait in waits)


async def test_positions_that_nobody_has_keep_everything() -> None:
    answers = [PartialFailure([7]), PartialFailure([-1])]
    stored: list[Count] = []

    def then(counts: list[Count]) -> None:
        if answers:
            raise answers.pop()
        stored.extend(counts)

    async with BatchQueue("q", BatchQueueConfig(consumer=merging(then))) as queue:
        await queue.produce_many([("a", 1), ("b", 1)])
        for position in (-1, 7):
            with pytest.raises(DeliveryError, match=f"from 0 to 1, got {position}"):
                await queue.flush()
        await queue.flush()
        assert stored == [("a", 1), ("b", 1)]


async def test_without_a_position_all_of_it_is_handed_on() -> None:
    calls: list[list[Count]] = []

    def then(counts: list[Count]) -> None:
        calls.append(counts)
        raise PartialFailure([])

    async with BatchQueue("q", BatchQueueConfig(consumer=merging(then))) as queue:
        await queue.produce_many([("a", 1), ("b", 1)])
        await queue.flush()
    assert calls == [[("a", 1), ("b", 1)]]


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_pause_that_is_asked_for_is_kept_where_there_is_no_room(
    attempts: int,
) -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def busy(counts: list[Count]) -> None:
        times.append(loop.time())
        if len(times) < 3:
            raise RetryAfter(500.0)

    config = BatchQueueConfig[Count](
        consumer=merging(busy, at_most=3),
        retry=Retry(attempts=attempts),
        on_error=lambda batch, error: None,
    )
    async with BatchQueue("q", config) as queue:
        for number in range(1_200):
            await queue.produce((f"{number}", 1))
            await asyncio.sleep(1.0)
    assert all(after - before >= 500 for before, after in pairwise(times[:3]))
    check_settled(queue)
