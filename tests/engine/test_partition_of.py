"""`partition_of`: where an item would wait, without anything coming of the question."""

from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    InvalidSelection,
    PartitionPolicy,
    PartitionSelector,
    SyncBatchQueue,
    by_key,
    by_type,
    round_robin,
)
from tests.bridge.background import answer_of, in_background


class Base: ...


class Derived(Base): ...


class Other: ...


def config(
    selector: PartitionSelector[Any] = by_type,
    **settings: Any,  # noqa: ANN401 - of any kind
) -> BatchQueueConfig[Any]:
    return BatchQueueConfig[Any](
        selector=selector, partitions=PartitionPolicy.fixed(4), **settings
    )


async def where_it_goes(queue: BatchQueue[Any], item: object) -> int:
    before = [each.accepted for each in queue.stats().partitions]
    assert await queue.produce(item)
    after = [each.accepted for each in queue.stats().partitions]
    more = [now - then for then, now in zip(before, after, strict=True)]
    assert sorted(more) == [0] * (len(more) - 1) + [1]
    return more.index(1)


SELECTORS: list[PartitionSelector[Any]] = [
    by_type,
    round_robin,
    by_key(lambda item: type(item).__name__),
    lambda item, partitions: len(type(item).__name__) % partitions,
]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("consumer", [None, lambda batch: None])
async def test_it_is_where_the_item_goes(
    selector: PartitionSelector[Any],
    consumer: Any,  # noqa: ANN401 - a handler or None
) -> None:
    async with BatchQueue("q", config(selector, consumer=consumer)) as queue:
        if consumer is None:
            queue.add_handler(Base, lambda _: None)
            queue.add_handler(object, lambda _: None)
        for item in (Base(), Other(), Derived(), 1, "one", Base(), 2, Other()):
            told = [queue.partition_of(item) for _ in range(3)]
            assert set(told) == {await where_it_goes(queue, item)}


async def test_it_places_nothing_and_counts_nothing() -> None:
    async with BatchQueue("q", config()) as queue:
        types = [type(f"Type{n}", (), {}) for n in range(8)]
        told = [queue.partition_of(each()) for each in types]
        assert len(set(told)) == 1, "each would get the same empty partition"
        assert queue.stats().accepted == queue.stats().rejected == 0
        queue.add_handler(Base, lambda _: None)
        assert queue.partition_of(Base()) == told[0], "it is still empty"
        assert queue.partition_of(Derived()) == told[0], "its base's"
        assert queue.partition_of(Other()) != told[0]


async def test_a_type_without_a_handler_has_one_all_the_same() -> None:
    async with BatchQueue("q", config()) as queue:
        queue.add_handler(Base, lambda _: None)
        index = queue.partition_of(Other())
        assert await where_it_goes(queue, Other()) == index
        assert queue.partition_of(Other()) == index


async def test_it_is_the_same_before_the_start_and_after_closing() -> None:
    queue = BatchQueue("q", config())
    queue.add_handler(Base, lambda _: None)
    queue.add_handler(Other, lambda _: None)
    before = [queue.partition_of(each) for each in (Base(), Other())]
    async with queue:
        assert [queue.partition_of(each) for each in (Base(), Other())] == before
    assert [queue.partition_of(each) for each in (Base(), Other())] == before
    assert before == [0, 1]


async def test_one_partition_needs_no_look() -> None:
    async with BatchQueue[Any]("q", BatchQueueConfig(consumer=print)) as queue:
        assert queue.partition_of(1) == 0


async def test_what_a_selector_or_a_key_raises_comes_out() -> None:
    async with BatchQueue("q", config(lambda *_: 9)) as queue:
        with pytest.raises(InvalidSelection):
            queue.partition_of(1)
    async with BatchQueue("q", config(by_key(lambda item: item))) as queue:
        with pytest.raises(TypeError, match="hashable"):
            queue.partition_of([])


@pytest.mark.real_time
async def test_threads_may_ask() -> None:
    async with BatchQueue("q", config(consumer=lambda _: None)) as queue:
        bridge = SyncBatchQueue(queue)
        await queue.produce_many([Base(), Other()])
        for item in (Base(), Other()):
            told = await answer_of(in_background(bridge.queue.partition_of, item))
            assert told == queue.partition_of(item)
