"""B4: an item goes to its exact type's handler, else to its nearest base's."""

import asyncio
import logging
from abc import ABC
from collections.abc import Hashable, Sized
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.every_loop import every_loop
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop


class Grandparent: ...


class Parent(Grandparent): ...


class Child(Parent): ...


class Stranger: ...


async def dispatch(
    items: list[Any], *types: type
) -> tuple[BatchQueue[Any], dict[type, list[Any]]]:
    """Send the items through a queue with a handler for each of the types."""
    handlers: dict[type, RecordingHandler[Any]] = {
        each: RecordingHandler() for each in types
    }
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        for item_type, handler in handlers.items():
            queue.add_handler(item_type, handler)
        assert await queue.produce_many(items) == len(items)
    check_settled(queue)
    return queue, {each: handler.items for each, handler in handlers.items()}


async def test_the_exact_type_comes_first() -> None:
    child, parent = Child(), Parent()
    _, got = await dispatch([child, parent], Grandparent, Parent, Child)
    assert got == {Grandparent: [], Parent: [parent], Child: [child]}


async def test_the_nearest_base_comes_next() -> None:
    child = Child()
    _, got = await dispatch([child], Grandparent, Parent)
    assert got == {Grandparent: [], Parent: [child]}


async def test_nearest_is_by_the_method_resolution_order() -> None:
    class Left: ...

    class Right: ...

    class Both(Right, Left): ...

    both = Both()
    _, got = await dispatch([both], Left, Right)
    assert got == {Left: [], Right: [both]}


async def test_a_diamond_goes_to_the_nearer_side() -> None:
    class Left(Grandparent): ...

    class Right(Grandparent): ...

    class Bottom(Left, Right): ...

    bottom = Bottom()
    _, got = await dispatch([bottom], Grandparent, Right)
    assert got == {Grandparent: [], Right: [bottom]}


async def test_a_bool_is_an_int() -> None:
    _, got = await dispatch([True, 2], int)
    assert got == {int: [True, 2]}


async def test_object_takes_everything_else() -> None:
    child = Child()
    _, got = await dispatch([child, None, "text", 1], object, str)
    assert got == {object: [child, None, 1], str: ["text"]}


async def test_a_base_class_item_does_not_go_down_to_a_subclass() -> None:
    queue, got = await dispatch([Parent()], Child)
    assert got == {Child: []}
    assert queue.stats().unhandled == 1


async def test_virtual_subclasses_do_not_count() -> None:
    class Registered(ABC):  # noqa: B024 - only to register with
        ...

    Registered.register(Stranger)
    queue, got = await dispatch([Stranger(), [1]], Registered, Sized, Hashable)
    assert not any(got.values())
    assert queue.stats().unhandled == 2


async def test_a_claimed_class_does_not_count() -> None:
    """`__class__` may say anything; mocks and proxies use it. The type decides."""

    class Proxy:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return Child

    queue, got = await dispatch([Proxy()], Child)
    assert got == {Child: []}
    assert queue.stats().unhandled == 1


async def test_items_may_be_unhashable_and_equal_to_everything() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    odd = [Odd() for _ in range(10)]
    _, got = await dispatch([*odd, 1], Odd, int)
    assert [id(item) for item in got[Odd]] == [id(item) for item in odd]
    assert got[int] == [1]


async def test_items_may_be_falsy_none_and_empty() -> None:
    _, got = await dispatch([None, 0, "", [], 0.0], type(None), int, str, list, float)
    assert got == {type(None): [None], int: [0], str: [""], list: [[]], float: [0.0]}


async def test_a_later_registration_takes_over_from_the_base() -> None:
    parent, child = RecordingHandler[Any](), RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        queue.add_handler(Parent, parent)
        assert await queue.produce(Child())
        await queue.flush()
        queue.add_handler(Child, child)
        assert await queue.produce(Child())
    assert (len(parent.items), len(child.items)) == (1, 1)


async def test_items_that_wait_already_go_to_the_later_registration() -> None:
    gate = asyncio.Event()
    parent, child = RecordingHandler[Any](gate=gate), RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        queue.add_handler(Parent, parent)
        assert await queue.produce(Child())
        await parent.entered()
        assert await queue.produce(Child())
        queue.add_handler(Child, child)
        gate.set()
    assert (len(parent.items), len(child.items)) == (1, 1)


async def test_after_removal_the_base_takes_over() -> None:
    gate = asyncio.Event()
    parent, child = RecordingHandler[Any](), RecordingHandler[Any](gate=gate)
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        queue.add_handler(Parent, parent)
        queue.add_handler(Child, child)
        assert await queue.produce(Child())
        await child.entered()
        assert await queue.produce(Child())
        assert queue.remove_handler(Child)
        gate.set()
    assert (len(parent.items), len(child.items)) == (1, 1)
    check_settled(queue)


async def test_without_any_handler_items_are_unhandled_and_logged_once_per_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        for _ in range(3):
            assert await queue.produce_many([Child(), Stranger()]) == 2
            await asyncio.sleep(0.01)
    assert check_settled(queue).unhandled == 6
    messages = [record.getMessage() for record in caplog.records]
    assert len([each for each in messages if "Child" in each]) == 1
    assert len([each for each in messages if "Stranger" in each]) == 1
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


async def test_losing_a_handler_again_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        assert await queue.produce(Child())
        await asyncio.sleep(0.01)
        queue.add_handler(Child, RecordingHandler())
        assert queue.remove_handler(Child)
        assert await queue.produce(Child())
    assert len([r for r in caplog.records if "Child" in r.getMessage()]) == 2


async def test_a_queue_drains_before_it_has_handlers() -> None:
    """As in the original: what came too early is unhandled, not kept."""
    handler = RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        assert await queue.produce(1)
        await asyncio.sleep(0.05)
        queue.add_handler(int, handler)
        assert await queue.produce(2)
    assert handler.items == [2]
    assert check_settled(queue).unhandled == 1
