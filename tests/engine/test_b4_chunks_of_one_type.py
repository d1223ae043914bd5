"""B4: a chunk of one type is seen when it comes, and nothing is sorted wrong by it."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
)
from batchqueue_async._engine.intake import Intake
from batchqueue_async._engine.partitions.item_types import WORTH_A_LOOK
from tests.bridge.interruptions import Interruption
from tests.engine.every_loop import every_loop
from tests.support.meddling import Once, before_each_line_of
from tests.support.oracle import check_settled
from tests.support.virtual_loop import VirtualTimeLoop

LONG = 2 * WORTH_A_LOOK
MOST_POINTS = 2_000
BUFFER = 3 * LONG

Step = tuple[str, int]
A = ("chunk of ints", LONG)
B = ("chunk of strs", LONG)
MIXED = ("mixed chunk", LONG)
INT = ("one int", 1)
ONE = ("one str", 1)
SHORT = ("chunk of strs", 3)
NEXT = ("turns", 5)


def items_of(step: Step, start: int) -> Sequence[int | str]:
    kind, count = step
    numbers = range(start, start + count)
    if kind in ("chunk of ints", "one int"):
        return list(numbers)
    if kind == "mixed chunk":
        # The first and the last are the same type's.
        return [str(n) if n == numbers[count // 2] else n for n in numbers]
    return [str(n) for n in numbers]


async def follow(steps: Sequence[Step], config: BatchQueueConfig[int | str]) -> None:
    """Take the steps; fail if an item reaches another type's handler, or too late."""
    received: list[int] = []

    def consume_ints(batch: list[int]) -> None:
        assert {type(item) for item in batch} == {int}
        received.extend(batch)

    def consume_strs(batch: list[str]) -> None:
        assert {type(item) for item in batch} == {str}
        received.extend(map(int, batch))

    produced = 0
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume_ints)
        queue.add_handler(str, consume_strs)
        for step in steps:
            if step == NEXT:
                for _ in range(step[1]):
                    await asyncio.sleep(0)
                continue
            items = items_of(step, produced)
            produced += len(items)
            if step[1] == 1:
                assert await queue.produce(items[0])
            else:
                assert await queue.produce_many(items) == len(items)
    stats = check_settled(queue)
    assert stats.handled + stats.dropped == produced
    assert stats.failed == 0
    assert len(set(received)) == len(received) == stats.handled


steps = st.lists(st.sampled_from([A, B, MIXED, INT, ONE, SHORT, NEXT]), max_size=12)


@given(
    steps,
    st.sampled_from([WhenFull.WAIT, WhenFull.DROP_OLDEST]),
    st.sampled_from([None, 7, LONG - 1]),
)
@example([A, ONE, A], WhenFull.WAIT, None)
@example([ONE, A, NEXT, ONE, MIXED, A], WhenFull.WAIT, None)
@example([A, NEXT, B, B, B, B], WhenFull.WAIT, None)
@example([A, A, B, A, B], WhenFull.DROP_OLDEST, None)
@example([A, B, A], WhenFull.WAIT, LONG - 1)
@example([INT, ONE, B], WhenFull.WAIT, LONG - 1)
def test_each_item_reaches_its_own_handler(
    steps: list[Step], when_full: WhenFull, max_batch: int | None
) -> None:
    config = BatchQueueConfig[int | str](
        buffer_size=BUFFER,
        partitions=PartitionPolicy.fixed(1),
        when_full=when_full,
        max_batch=max_batch,
    )
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(follow(steps, config))


class Intrusive(type):
    """A metaclass that does something when its classes are compared."""

    def __eq__(cls, other: object) -> bool:
        return cls.compared(other)

    __hash__ = type.__hash__

    @staticmethod
    def compared(other: object) -> bool:
        raise RuntimeError


class Odd(metaclass=Intrusive):
    """Its class is not compared for nothing."""


SOLE = BatchQueueConfig[Any](buffer_size=BUFFER, partitions=PartitionPolicy.fixed(1))


@every_loop
async def test_a_metaclass_that_raises_harms_no_producer() -> None:
    received: list[object] = []
    async with BatchQueue[Any]("q", SOLE) as queue:
        queue.add_handler(object, received.extend)
        chunk = [*range(LONG), Odd(), 1]
        for _ in range(2):
            assert await queue.produce_many(chunk) == len(chunk)
    assert received == [*chunk, *chunk]
    check_settled(queue)


@every_loop
async def test_a_metaclass_that_produces_gets_no_more_in_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunk = [*range(LONG), Odd(), 1]
    # Both chunks just fit in, and meet no edge.
    config = BatchQueueConfig[Any](
        buffer_size=2 * len(chunk), partitions=PartitionPolicy.fixed(1)
    )
    received: list[object] = []
    async with BatchQueue[Any]("q", config) as queue:
        queue.add_handler(object, received.extend)
        placed: list[bool] = []

        def compared(other: object) -> bool:
            placed.extend(queue.produce_nowait("between") for _ in range(3))
            return other is Odd

        monkeypatch.setattr(Intrusive, "compared", staticmethod(compared))
        assert await queue.produce_many([0] * (len(chunk) - 1)) == len(chunk) - 1
        await queue.produce_many(chunk)
        assert True in placed
        assert queue.stats().waiting <= config.buffer_size
    assert received.count("between") == sum(placed)
    check_settled(queue)


@every_loop
async def test_threads_chunks_are_seen_as_well() -> None:
    received: dict[type, list[Any]] = {int: [], str: []}
    async with BatchQueue[Any]("q", SOLE) as queue:
        for item_type, items in received.items():
            queue.add_handler(item_type, items.extend)
        bridge = SyncBatchQueue[Any](queue)
        for chunk in ([*range(LONG)], ["a"], [*range(LONG)], [*"bc" * LONG]):
            assert await asyncio.to_thread(bridge.produce_many, chunk) == len(chunk)
    assert received[int] == [*range(LONG), *range(LONG)]
    assert received[str] == ["a", *"bc" * LONG]
    check_settled(queue)


@pytest.mark.parametrize("when_full", [WhenFull.WAIT, WhenFull.DROP_OLDEST])
@pytest.mark.parametrize("waiting", [WORTH_A_LOOK, BUFFER - WORTH_A_LOOK])
@every_loop
async def test_what_comes_in_around_a_look_at_types_is_seen(
    waiting: int, when_full: WhenFull
) -> None:
    """A `__del__` or a signal handler may produce at that moment."""
    config = BatchQueueConfig[Any](
        buffer_size=BUFFER,
        partitions=PartitionPolicy.fixed(1),
        when_full=when_full,
        max_batch=50,
    )
    for line in range(20):
        received: dict[type, list[Any]] = {int: [], str: []}
        async with BatchQueue[Any]("q", config) as queue:
            for item_type, items in received.items():
                queue.add_handler(item_type, items.extend)
            await queue.produce_many([-1] * waiting)
            chunk = [*range(WORTH_A_LOOK)]
            placed: list[bool] = []

            def meddle(
                queue: BatchQueue[Any] = queue, seen: list[bool] = placed
            ) -> None:
                seen.append(queue.produce_nowait("between"))

            meddler = Once(line, meddle)
            with before_each_line_of(Intake.put_whole, act=meddler):
                await queue.produce_many(chunk)
        dropped = check_settled(queue).dropped
        assert received[int] == [*[-1] * (waiting - dropped), *chunk]
        assert received[str] == ["between"] * sum(placed)
        if not meddler.has_acted:
            return
    pytest.fail("it never came to an end")


class Struck(BaseException):
    """What a signal handler raises, as Ctrl-C does."""


def strike() -> None:
    raise Struck


async def test_wherever_ctrl_c_strikes_a_displacement_each_type_keeps_its_handler() -> (
    None
):
    """What waited had one type, and the item that displaces has another one."""
    config = BatchQueueConfig[Any](
        buffer_size=LONG,
        partitions=PartitionPolicy.fixed(1),
        when_full=WhenFull.DROP_OLDEST,
    )
    for at in range(MOST_POINTS):
        received: dict[type, list[Any]] = {int: [], str: []}
        async with BatchQueue[Any]("q", config) as queue:
            for item_type, items in received.items():
                queue.add_handler(item_type, items.extend)
            assert await queue.produce_many([0] * LONG) == LONG
            interruption = Interruption(at, strike)
            with contextlib.suppress(Struck), interruption:
                queue.produce_nowait("a")
            assert queue.produce_nowait("b")
        check_settled(queue)
        assert set(received[int]) == {0}, interruption.where
        assert received[str][-1:] == ["b"], interruption.where
        if not interruption.has_acted:
            return
    pytest.fail("it never came to an end")
