"""What a program makes as it goes is not kept: its types, its handlers.

B2 holds all the same: a type that anybody still knows, or of which there is any item,
stays where it is.
"""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
)
from batchqueue_async._engine.partitions.weak_type_dict import LEAST, WeakTypeDict
from batchqueue_async.testing import RecordingHandler
from tests.engine.until import until
from tests.support.oracle import check_settled

COUNT = 2_000
MOST_LEFT = 2 * LEAST + 150
"""What may be known lately, and what is kept for a flush: 100 failures."""

CONFIGS = {
    "one partition": BatchQueueConfig[Any](),
    "eight": BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(8)),
    "adaptive": BatchQueueConfig[Any](
        partitions=PartitionPolicy.adaptive(), drain_tasks=DrainTaskPolicy.fixed(2)
    ),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


class Base: ...


def make(number: int) -> type[Base]:
    return type(f"Made{number}", (Base,), {})


def ignore(_: list[Any]) -> None:
    """Handle a batch."""


def left(references: list[weakref.ref[Any]]) -> int:
    gc.collect()
    return sum(each() is not None for each in references)


async def _produce_hundred(queue: BatchQueue[Any], by: str) -> list[weakref.ref[Any]]:
    items = [make(number)() for number in range(100)]
    if by == "produce":
        for each in items:
            assert await queue.produce(each)
    else:
        # So many that sorting them is worthwhile.
        assert await queue.produce_many([each for each in items for _ in range(6)])
    return [weakref.ref(type(each)) for each in items]


async def produce_each(
    queue: BatchQueue[Any], count: int, by: str
) -> list[weakref.ref[Any]]:
    """Produce an item of so many new types; returns references to the types."""
    references: list[weakref.ref[Any]] = []
    while len(references) < count:
        references += await _produce_hundred(queue, by)
        await until(lambda: not queue.stats().waiting and not queue.stats().in_flight)
    return references


@each_config
@pytest.mark.parametrize("by", ["produce", "produce_many"])
@pytest.mark.parametrize("has_handler", [True, False])
async def test_types_that_nobody_knows_any_more_are_forgotten(
    config: BatchQueueConfig[Any], by: str, *, has_handler: bool
) -> None:
    async with BatchQueue("q", config) as queue:
        if has_handler:
            queue.add_handler(Base, ignore)
        references = await produce_each(queue, COUNT, by)
        assert left(references) < MOST_LEFT
    assert check_settled(queue).accepted == COUNT * (1 if by == "produce" else 6)


@each_config
async def test_types_that_came_all_at_once_are_forgotten(
    config: BatchQueueConfig[Any],
) -> None:
    async with BatchQueue("q", config) as queue:
        queue.add_handler(Base, ignore)
        references: list[weakref.ref[Any]] = []
        for number in range(COUNT):
            item = make(number)()
            references.append(weakref.ref(type(item)))
            assert queue.produce_nowait(item)
        del item
        await queue.flush()
        # The drain task lets go of its last batch.
        await asyncio.sleep(0.01)
        assert left(references) < MOST_LEFT


class Hooked:
    """A handler that a queue has to call at the end."""

    def consume(self, batch: list[Any]) -> None:
        """Handle a batch."""

    async def on_idle(self) -> None:
        """Nothing comes."""

    async def on_close(self) -> None:
        """Nothing comes any more."""


class Plain:
    """A handler of its own for each type."""

    def consume(self, batch: list[Any]) -> None:
        """Handle a batch."""


@pytest.mark.slow
@each_config
@pytest.mark.parametrize("kind", [Plain, Hooked])
@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize("has_items", [True, False])
async def test_handlers_that_were_removed_are_forgotten_with_their_types(
    config: BatchQueueConfig[Any],
    kind: Callable[[], Any],
    *,
    in_turn: bool,
    has_items: bool,
) -> None:
    """All at once, or each before the next one comes."""
    types: list[weakref.ref[Any]] = []
    handlers: list[weakref.ref[Any]] = []
    async with BatchQueue("q", config) as queue:
        for number in range(COUNT // 2):
            item_type, handler = make(number), kind()
            types.append(weakref.ref(item_type))
            handlers.append(weakref.ref(handler))
            queue.add_handler(item_type, handler)
            if has_items:
                assert await queue.produce(item_type())
            if in_turn:
                assert queue.remove_handler(item_type)
        if not in_turn:
            for each in types:
                assert queue.remove_handler(each())  # type: ignore[arg-type]
        del item_type, handler
        await until(lambda: not queue.stats().waiting and not queue.stats().in_flight)
        await asyncio.sleep(1)
        assert left(handlers) < 50
        assert left(types) < MOST_LEFT


@each_config
async def test_a_type_that_somebody_knows_keeps_its_partition(
    config: BatchQueueConfig[Any],
) -> None:
    kept = [make(number) for number in range(40)]
    async with BatchQueue("q", config) as queue:
        homes: list[list[int]] = []
        for _ in range(4):
            homes.append([home(queue, each) for each in kept])
            await queue.flush() if queue.stats().partitions[0].handled else None
            assert left(await produce_each(queue, 3 * LEAST, "produce")) < MOST_LEFT
        assert homes.count(homes[0]) == len(homes)
        queue.add_handler(kept[0], ignore)
        assert home(queue, kept[0]) == homes[0][0]


def home(queue: BatchQueue[Any], item_type: type) -> int:
    """Return the partition in which the type's items go, by putting one in."""
    before = [each.accepted for each in queue.stats().partitions]
    assert queue.produce_nowait(item_type())
    after = [each.accepted for each in queue.stats().partitions]
    (index,) = [p for p, count in enumerate(after) if count != before[p]]
    return index


async def test_a_type_with_an_item_keeps_its_partition() -> None:
    """Nobody else knows it, but it waits, or is in its handler's hands."""
    handler = RecordingHandler[Any](gate=asyncio.Event())
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(8), drain_tasks=DrainTaskPolicy.fixed(8)
    )
    async with BatchQueue("q", config) as queue:
        types = [make(number) for number in range(8)]
        where = {each: home(queue, each) for each in types}
        names = {each.__name__: weakref.ref(each) for each in types}
        assert len(set(where.values())) == 8
        expected = {each.__name__: index for each, index in where.items()}
        queue.add_handler(Base, handler)
        del types, where
        # Other types come and go, and all have to leave the plain dict.
        evictions = queue._parts.placement.placed.evictions  # type: ignore[union-attr]
        for number in range(3 * LEAST):
            assert queue.produce_nowait(type(f"Other{number}", (), {})())
            await asyncio.sleep(0)
        gc.collect()
        assert queue._parts.placement.placed.evictions > evictions  # type: ignore[union-attr]
        for name, reference in names.items():
            item_type = reference()
            if item_type is not None:
                assert home(queue, item_type) == expected[name]
        del item_type
        assert handler.gate is not None
        handler.gate.set()


async def test_types_in_steady_use_are_looked_up_by_the_hot_path() -> None:
    """More of them than new ones are let in; they leave a few times, and then stay."""
    types = [make(number) for number in range(4 * LEAST)]
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(8))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(Base, ignore)
        placement = queue._parts.placement
        for _ in range(12):
            evictions = placement.placed.evictions  # type: ignore[union-attr]
            for each in types:
                assert await queue.produce(each())
            await queue.flush()
        assert placement.placed.evictions == evictions  # type: ignore[union-attr]
        assert placement.routes.keys() >= set(types)
        # One that comes once does not drive them out.
        await produce_each(queue, LEAST, "produce")
        assert placement.placed.evictions == evictions  # type: ignore[union-attr]


async def test_a_partition_of_forgotten_types_is_empty_for_new_ones() -> None:
    first, second = make(1), make(2)
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(4))
    async with BatchQueue("q", config) as queue:
        await produce_each(queue, 3 * LEAST, "produce")
        # Let even the last ones leave.
        for number in range(2 * LEAST):
            queue.add_handler(type(f"Brief{number}", (), {}), ignore)
        for each in list(queue._parts.handlers.types):
            assert queue.remove_handler(each)
        del each
        gc.collect()
        for item_type in (first, second):
            queue.add_handler(item_type, ignore)
        seen = queue._parts.placement.lightest
        assert seen is not None
        assert sum(seen.types) < MOST_LEFT


async def test_items_of_a_partition_that_others_have_left_are_still_told_apart() -> (
    None
):
    """Whether a take has to be sorted is known from the types that live there."""
    one, other = RecordingHandler[Any](), RecordingHandler[Any]()
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(2))
    mine, yours = make(1), make(2)
    async with BatchQueue("q", config) as queue:
        await produce_each(queue, 3 * LEAST, "produce")
        queue.add_handler(mine, one)
        queue.add_handler(yours, other)
        queue.add_handler(Base, ignore)
        for _ in range(3):
            await produce_each(queue, LEAST, "produce")
            gc.collect()
            queue.add_handler(make(3), ignore)
            assert await queue.produce_many([mine(), yours(), mine(), yours()]) == 4
            await asyncio.sleep(0.01)
    assert {type(each) for each in one.items} == {mine}
    assert {type(each) for each in other.items} == {yours}
    assert (len(one.items), len(other.items)) == (6, 6)


async def test_a_type_without_handler_is_reported_once_while_it_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = type("Kept", (), {})
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        for _ in range(3):
            assert await queue.produce(kept())
            await produce_each(queue, 400, "produce")
            gc.collect()
        assert len(queue._parts.unhandled_types._told or ()) < MOST_LEFT
    told = [each.getMessage() for each in caplog.records]
    assert sum("of type Kept" in each for each in told) == 1
    assert len(told) == 1201, "every type was new"


async def test_a_handler_that_comes_back_while_it_is_at_work_is_not_entered_twice() -> (
    None
):
    """Thousands of others were removed meanwhile, so that gates were forgotten."""
    gate, inside, most = asyncio.Event(), 0, 0

    async def handle(_: list[Any]) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1

    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(2), drain_tasks=DrainTaskPolicy.fixed(2)
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(str, handle)
        queue.add_handler(int, handle)
        assert await queue.produce(1)
        await until(lambda: inside)
        gates = {id(each.lock) for each in queue._parts.handlers}
        assert queue.remove_handler(int)
        assert queue.remove_handler(str)
        for number in range(200):
            queue.add_handler(each := make(number), Plain())
            assert queue.remove_handler(each)
        queue.add_handler(int, handle)
        assert {id(each.lock) for each in queue._parts.handlers} == gates
        assert await queue.produce(2)
        await asyncio.sleep(0.1)
        gate.set()
    assert check_settled(queue).handled == 2
    assert most == 1


class OddlyEqual(type):
    """Two types that are equal: one entry stands for both."""

    def __eq__(cls, other: object) -> bool:
        return type(other) is OddlyEqual

    def __hash__(cls) -> int:
        return 7


def test_a_type_that_is_equal_to_another_one_stays_near() -> None:
    known: WeakTypeDict[int] = WeakTypeDict({})
    first, second = OddlyEqual("First", (), {}), OddlyEqual("Second", (), {})
    known.add(first, 1)
    for number in range(2 * LEAST):
        known.add(make(number), number)
    assert known.evictions
    del first
    gc.collect()
    assert known.recall(second)
    assert known.near[second] == 1


def test_what_had_to_leave_comes_back_with_its_value_and_ends_with_its_type() -> None:
    known: WeakTypeDict[int] = WeakTypeDict({int})
    known.ended = []
    kept, lost = make(1), make(2)
    for number, each in enumerate((int, kept, lost)):
        known.add(each, number)
    for number in range(2 * LEAST):
        known.add(make(number), number)
    assert int in known.near
    assert kept not in known.near
    del lost, each
    gc.collect()
    assert 2 in known.ended
    assert known.recall(kept)
    assert known.near[kept] == 1
    assert not known.recall(str)
