"""Items that are looked at, and meet no edge: the quick way in keeps each promise.

The first item of a partition is announced to its drain task. Later ones need not be,
until one fills a batch, or the partition, or meets somebody who waits in line.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartitionPolicy,
    Retry,
    RetryAfter,
    WhenFull,
    fair_by,
)
from batchqueue_async._engine.partitions.fair_partition import FairPartition
from tests.engine.every_loop import every_loop
from tests.support.oracle import check_accounts, check_settled

pytestmark = every_loop

FAIR: dict[str, Any] = {"selector": fair_by(lambda _: "key")}
KINDS: dict[str, dict[str, Any]] = {
    "sized": {"size_of": lambda _: 1, "buffer_bytes": 1000},
    "fair": FAIR,
}
WAYS: dict[str, Callable[[BatchQueue[str], str], Any]] = {
    "nowait": lambda queue, item: queue.produce_nowait(item),
    "produce": lambda queue, item: queue.produce(item),
    "many": lambda queue, item: queue.produce_many([item]),
    "offer": lambda queue, item: queue.offer(item),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


class Batches(list[list[str]]):
    """A handler without hooks, for whose sake its drain task would look by itself."""

    async def consume(self, items: list[str]) -> None:
        self.append(items)

    @property
    def items(self) -> list[str]:
        return [item for batch in self for item in batch]


async def put(
    queue: BatchQueue[str], way: Callable[[BatchQueue[str], str], Any], items: str
) -> None:
    for item in items:
        answer = way(queue, item)
        assert await answer if asyncio.iscoroutine(answer) else answer
        check_accounts(queue)


def queue_with(handler: Any, kind: dict[str, Any], **more: Any) -> BatchQueue[str]:  # noqa: ANN401
    if isinstance(handler, Batches):
        handler = handler.consume
    return BatchQueue("q", BatchQueueConfig(consumer=handler, **kind, **more))


@kinds
@ways
async def test_the_item_that_fills_a_batch_ends_the_linger(
    kind: dict[str, Any], way: Callable[..., Any]
) -> None:
    handler = Batches()
    async with queue_with(handler, kind, linger=60.0, max_batch=4) as queue:
        await put(queue, way, "abc")
        await asyncio.sleep(0.02)
        assert handler == []
        await put(queue, way, "d")
        await asyncio.sleep(0.02)
        assert handler == [list("abcd")]
        # After a take the first one is announced again, and lingers.
        await put(queue, way, "efgh")
        await asyncio.sleep(0.02)
        assert handler[1:] == [list("efgh")]
    check_settled(queue)


@ways
async def test_so_does_the_item_that_makes_it_large_enough(
    way: Callable[..., Any],
) -> None:
    kind = {"size_of": lambda _: 0.5, "max_batch_bytes": 2, "linger": 60.0}
    handler = Batches()
    async with queue_with(handler, kind) as queue:
        await put(queue, way, "abc")
        await asyncio.sleep(0.02)
        assert handler == []
        await put(queue, way, "d")
        await asyncio.sleep(0.02)
        assert handler == [list("abcd")]


@kinds
async def test_no_more_wait_than_there_are_slots(kind: dict[str, Any]) -> None:
    handler = Batches()
    more = {"buffer_size": 4, "when_full": WhenFull.DROP_NEWEST}
    async with queue_with(handler, kind, **more) as queue:
        assert [queue.produce_nowait(item) for item in "abcde"] == [True] * 4 + [False]
        assert queue.stats().waiting == 4
    assert handler.items == list("abcd")


@kinds
async def test_the_oldest_make_room(kind: dict[str, Any]) -> None:
    handler = Batches()
    more = {"buffer_size": 4, "when_full": WhenFull.DROP_OLDEST}
    async with queue_with(handler, kind, **more) as queue:
        assert all(queue.produce_nowait(item) for item in "abcde")
        assert queue.stats().waiting == 4
    assert handler.items == list("bcde")


async def test_no_more_wait_than_there_is_room() -> None:
    kind = {"size_of": int, "buffer_bytes": 6}
    handler = Batches()
    async with queue_with(handler, kind, when_full=WhenFull.DROP_NEWEST) as queue:
        given = [queue.produce_nowait(item) for item in "12241"]
        assert given == [True, True, True, False, True]
        assert queue.stats().waiting_bytes == 6
    assert handler.items == list("1221")


@kinds
async def test_who_waits_in_line_is_not_overtaken(kind: dict[str, Any]) -> None:
    seen: list[str] = []
    is_open = asyncio.Event()

    async def handle(items: list[str]) -> None:
        await is_open.wait()
        seen.extend(items)

    config = {"buffer_size": 3, "max_batch": 2}
    refused: list[bool] = []
    async with queue_with(handle, kind, **config) as queue:

        async def first() -> None:
            await queue.produce("f")
            # A slot is kept for who waits behind it.
            refused.append(not queue.produce_nowait("x"))

        async with asyncio.TaskGroup() as group:
            await queue.produce_many("ab")
            await asyncio.sleep(0.01)
            await queue.produce_many("cde")
            group.create_task(first())
            await asyncio.sleep(0.01)
            group.create_task(queue.produce("g"))
            await asyncio.sleep(0.01)
            is_open.set()
    assert refused == [True]
    assert seen == list("abcdefg")


async def test_nor_is_who_waits_for_room_in_another_partition() -> None:
    release = asyncio.Event()
    seen: list[str] = []

    async def handle(items: list[str]) -> None:
        await release.wait()
        seen.extend(items)

    config = BatchQueueConfig[str](
        consumer=handle,
        selector=lambda item, count: int(item[0]) % count,
        partitions=PartitionPolicy.fixed(2),
        size_of=lambda item: len(item) - 1,
        buffer_bytes=10,
        max_batch=1,
    )
    async with BatchQueue("q", config) as queue:
        for item in ("0", "0xxx", "0xxx"):
            await queue.produce(item)
            await asyncio.sleep(0.01)
        waiting = asyncio.create_task(queue.produce("1" + 5 * "y"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        # It would fit in, and it came later.
        assert not queue.produce_nowait("0z")
        release.set()
        assert await waiting
    check_settled(queue)


@kinds
@ways
async def test_nothing_gets_in_after_the_end(
    kind: dict[str, Any], way: Callable[..., Any]
) -> None:
    handler = Batches()
    async with queue_with(handler, kind, linger=60.0) as queue:
        await put(queue, way, "abc")
        await asyncio.sleep(0.01)
        (partition,) = queue._parts.partitions
        partition.close()
        assert not queue.produce_nowait("d")
        assert queue.stats().waiting == 3
    assert handler.items == list("abc")


@pytest.mark.asyncio(loop_factories=["virtual"])
async def test_items_that_a_retry_holds_back_make_no_batch_due() -> None:
    seen: list[list[str]] = []

    def handle(items: list[str]) -> None:
        seen.append(items)
        if len(seen) == 1:
            raise RetryAfter(20.0)

    config = {"max_batch": 3, "linger": 600.0, "retry": Retry(attempts=2)}
    async with queue_with(handle, FAIR, **config) as queue:
        await put(queue, WAYS["nowait"], "abc")
        await asyncio.sleep(0.02)
        (partition,) = queue._parts.partitions
        assert isinstance(partition, FairPartition)
        await put(queue, WAYS["nowait"], "def")
        assert partition.ready == 0
        await asyncio.sleep(0.02)
        assert seen == [list("abc")]
    assert seen[1:] == [list("abc"), list("def")]
