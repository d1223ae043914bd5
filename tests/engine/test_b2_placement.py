"""B2: with `by_type` every type stays in one partition for good."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    by_key,
    round_robin,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingConsumer, RecordingHandler

pytestmark = every_loop


def new_types(count: int) -> list[type]:
    return [type(f"Type{number}", (), {}) for number in range(count)]


def adaptive(drain_tasks: int, multiplier: int = 25) -> BatchQueue[object]:
    config = BatchQueueConfig[object](
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.adaptive(multiplier),
    )
    return BatchQueue("q", config)


def fixed(partitions: int) -> BatchQueue[object]:
    config = BatchQueueConfig[object](partitions=PartitionPolicy.fixed(partitions))
    return BatchQueue("q", config)


def ignore(_: list[Any]) -> None:
    """Handle a batch."""


def add(queue: BatchQueue[object], types: Sequence[type], weight: float = 1.0) -> None:
    for each in types:
        queue.add_handler(each, ignore, weight)


def home(queue: BatchQueue[object], item_type: type) -> int:
    (index,) = homes(queue, [item_type])
    return index


def homes(queue: BatchQueue[object], types: Sequence[type]) -> list[int]:
    """Return the partitions in which the types' items go, by putting one of each in."""
    found: list[int] = []
    before = accepted(queue)
    for each in types:
        assert queue.produce_nowait(each())
        after = accepted(queue)
        (index,) = [p for p, count in enumerate(after) if count != before[p]]
        found.append(index)
        before = after
    return found


def accepted(queue: BatchQueue[object]) -> list[int]:
    return [each.accepted for each in queue.stats().partitions]


@pytest.mark.slow
async def test_growth_moves_no_type() -> None:
    types = new_types(500)
    async with adaptive(8) as queue:
        placed: list[int] = []
        for count in (8, 9, 50, 200, 201, 350, 500):
            add(queue, types[len(placed) : count])
            now = homes(queue, types[:count])
            assert now[: len(placed)] == placed
            placed = now
        assert len(queue.stats().partitions) == 350
    check_settled(queue)


async def test_growth_with_items_waiting_keeps_order_and_exclusion() -> None:
    """The original's D5: its items before and after growth ran side by side."""
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    async with adaptive(4) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(0)
        await handler.entered()
        for step, item_type in enumerate(new_types(60), start=1):
            assert await queue.produce(step)
            queue.add_handler(item_type, ignore)
        assert len(queue.stats().partitions) == 61
        partitions = [each.index for each in queue.stats().partitions if each.accepted]
        assert len(partitions) == 1
        gate.set()
    assert handler.items == list(range(61))
    assert handler.max_concurrency == 1


async def test_growth_while_a_producer_waits_loses_nobody() -> None:
    config = BatchQueueConfig[object](
        partitions=PartitionPolicy.adaptive(), buffer_size=1
    )
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce(1)
        waiting = [asyncio.create_task(queue.produce(item)) for item in (2, 3)]
        await asyncio.sleep(0)
        add(queue, new_types(20))
        gate.set()
        assert all(await asyncio.gather(*waiting))
    assert handler.items == [0, 1, 2, 3]


async def test_placement_happens_at_the_first_item_too() -> None:
    """An item came before any handler: its type stays where it was put."""
    (unknown, *known) = new_types(10)
    async with adaptive(2) as queue:
        first = home(queue, unknown)
        add(queue, known)
        assert home(queue, unknown) == first
        queue.add_handler(unknown, ignore)
        assert home(queue, unknown) == first


async def test_a_type_without_handler_lives_with_its_registered_base() -> None:
    class Base: ...

    class Sub(Base): ...

    class SubSub(Sub): ...

    async with fixed(4) as queue:
        add(queue, [*new_types(2), Base])
        assert homes(queue, [Base, Sub, SubSub]) == [2, 2, 2]


async def test_a_type_placed_with_its_base_stays_there_when_it_is_registered() -> None:
    class Base: ...

    class Sub(Base): ...

    async with fixed(4) as queue:
        queue.add_handler(Base, ignore)
        before = homes(queue, [Base, Sub])
        queue.add_handler(Sub, ignore)
        assert homes(queue, [Base, Sub]) == before


async def test_a_type_registered_before_its_first_item_gets_its_own_place() -> None:
    class Base: ...

    class Sub(Base): ...

    async with fixed(4) as queue:
        queue.add_handler(Base, ignore)
        queue.add_handler(Sub, ignore)
        assert home(queue, Sub) != home(queue, Base)


async def test_remove_handler_moves_no_type() -> None:
    class Base: ...

    class Sub(Base): ...

    async with fixed(4) as queue:
        add(queue, [Base, Sub])
        before = homes(queue, [Base, Sub])
        assert queue.remove_handler(Sub)
        assert homes(queue, [Base, Sub]) == before
        assert queue.remove_handler(Base)
        assert homes(queue, [Base, Sub]) == before
        add(queue, [Sub, Base])
        assert homes(queue, [Base, Sub]) == before


async def test_an_unregistered_subclass_follows_nobody_once_it_is_placed() -> None:
    """Its nearest base is registered later: dispatch changes, the place doesn't."""

    class Far: ...

    class Near(Far): ...

    class Item(Near): ...

    far, near = RecordingHandler[Any](), RecordingHandler[Any]()
    async with fixed(4) as queue:
        queue.add_handler(Far, far)
        before = home(queue, Item)
        await queue.flush()
        queue.add_handler(Near, near)
        assert home(queue, Item) == before
        await queue.flush()
    assert (len(far.items), len(near.items)) == (1, 1)


async def test_each_type_has_its_own_partition_while_there_are_enough() -> None:
    types = new_types(100)
    async with adaptive(8) as queue:
        add(queue, types)
        assert sorted(homes(queue, types)) == list(range(100))


async def test_unregistered_types_take_no_registered_types_partition() -> None:
    unknown, known = new_types(3), new_types(6)
    async with adaptive(2) as queue:
        homes(queue, unknown)
        add(queue, known)
        assert len(set(homes(queue, known))) == 6


async def test_types_beyond_share_the_lightest_partition() -> None:
    heavy, *light = new_types(6)
    async with fixed(2) as queue:
        queue.add_handler(heavy, ignore, weight=3.5)
        add(queue, light)
        # 3.5 | 1, 2, 3, 4: the fifth light one is the first that joins the heavy one.
        assert homes(queue, [heavy, *light]) == [0, 1, 1, 1, 1, 0]


async def test_a_removed_handlers_weight_no_longer_counts() -> None:
    heavy, light, late = new_types(3)
    async with fixed(2) as queue:
        queue.add_handler(heavy, ignore, weight=100)
        queue.add_handler(light, ignore)
        assert queue.remove_handler(heavy)
        queue.add_handler(late, ignore)
        assert homes(queue, [heavy, light, late]) == [0, 1, 0]


async def test_a_replaced_handler_counts_with_its_new_weight_alone() -> None:
    first, second, third = new_types(3)
    async with fixed(2) as queue:
        queue.add_handler(first, ignore, weight=3)
        queue.add_handler(second, ignore, weight=1)
        queue.add_handler(first, ignore, weight=0.5)
        queue.add_handler(third, ignore)
        assert homes(queue, [first, second, third]) == [0, 1, 0]


async def test_removing_an_unregistered_type_changes_no_weight() -> None:
    first, second, third = new_types(3)
    async with fixed(2) as queue:
        queue.add_handler(first, ignore, weight=2)
        queue.add_handler(second, ignore, weight=1)
        assert not queue.remove_handler(third)
        assert not queue.remove_handler(third)
        queue.add_handler(third, ignore)
        assert home(queue, third) == 1


@pytest.mark.parametrize("count, partitions", [(20, 1), (40, 2), (60, 3), (61, 4)])
async def test_weights_add_up_exactly(count: int, partitions: int) -> None:
    """The original's D10: with floats twenty times 0.05 rounds up to 2."""
    async with adaptive(1) as queue:
        add(queue, new_types(count), weight=0.05)
        assert len(queue.stats().partitions) == partitions


async def test_weights_that_come_and_go_leave_no_drift() -> None:
    types = new_types(10)
    async with adaptive(1) as queue:
        for _ in range(30):
            add(queue, types, weight=0.1)
            for each in types:
                assert queue.remove_handler(each)
        add(queue, types, weight=0.1)
        assert len(queue.stats().partitions) == 1


async def test_partitions_never_shrink() -> None:
    """The original's sequence, probed: 2, 5, 5, 5, 5, 7."""
    async with adaptive(2) as queue:
        types = new_types(4)
        counts = [len(queue.stats().partitions)]

        def add_one(item_type: type, weight: float) -> None:
            queue.add_handler(item_type, ignore, weight)
            counts.append(len(queue.stats().partitions))

        add_one(types[0], 5)
        add_one(types[0], 1)
        add_one(types[1], 3)
        assert queue.remove_handler(types[0])
        counts.append(len(queue.stats().partitions))
        add_one(types[2], 4)
    assert counts == [2, 5, 5, 5, 5, 7]


async def test_growth_of_a_queue_that_is_not_started_holds_when_it_starts() -> None:
    queue = adaptive(2)
    types = new_types(10)
    add(queue, types)
    async with queue:
        assert sorted(homes(queue, types)) == list(range(10))
    check_settled(queue)


async def test_equal_keys_share_a_partition() -> None:
    handler = RecordingConsumer[tuple[str, int]]()
    config = BatchQueueConfig[tuple[str, int]](
        partitions=PartitionPolicy.fixed(8),
        drain_tasks=DrainTaskPolicy.fixed(8),
        selector=by_key(lambda item: item[0]),
        consumer=handler,
    )
    async with BatchQueue("q", config) as queue:
        for step in range(30):
            for key in "abcde":
                assert await queue.produce((key, step))
    for key in "abcde":
        steps = [step for each, step in handler.items if each == key]
        assert steps == list(range(30))


async def test_round_robin_takes_the_partitions_in_turn() -> None:
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(3), selector=round_robin, consumer=ignore
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(0)
        assert queue.produce_nowait(1)
        assert await queue.produce_many(range(2, 8)) == 6
        await until(lambda: queue.stats().handled == 8)
        assert [each.accepted for each in queue.stats().partitions] == [3, 3, 2]


async def test_round_robin_counts_per_queue() -> None:
    """Its state is the queue's: one selector serves two queues."""
    config = BatchQueueConfig[int](
        partitions=PartitionPolicy.fixed(2), selector=round_robin, consumer=ignore
    )
    async with BatchQueue("one", config) as one, BatchQueue("two", config) as two:
        for item in range(4):
            assert await one.produce(item)
            assert await two.produce(item)
        for queue in (one, two):
            assert [each.accepted for each in queue.stats().partitions] == [2, 2]
