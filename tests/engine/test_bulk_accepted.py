"""What leaves `produce_many` says in `accepted` how many items are in."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    InvalidSelection,
    PartitionPolicy,
    PartitionSelector,
    WouldDeadlock,
    by_type,
    round_robin,
)
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_accounts
from tests.support.recording_handler import RecordingHandler

# Whether `asyncio.timeout` gives what it raises a cause.
HAS_CAUSE = sys.version_info >= (3, 11, 3)
TYPES = [type(f"T{number}", (), {"__slots__": ()}) for number in range(6)]


def accepted_of(error: BaseException | None) -> int:
    accepted = getattr(error, "accepted", None)
    assert isinstance(accepted, int)
    return accepted


async def full(queue: BatchQueue[Any]) -> asyncio.Task[int]:
    """Let a bulk call wait, with some of its items in."""
    call = asyncio.create_task(queue.produce_many(range(10)))
    await asyncio.sleep(1.0)
    assert not call.done()
    return call


class TestCutOff:
    async def test_a_cancelled_one(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        async with BatchQueue("q", BatchQueueConfig[int](buffer_size=3)) as queue:
            queue.add_handler(int, handler)
            errors: list[BaseException] = []

            async def produce() -> None:
                try:
                    await queue.produce_many(range(10))
                except asyncio.CancelledError as error:
                    errors.append(error)
                    raise

            call = asyncio.create_task(produce())
            await asyncio.sleep(1.0)
            call.cancel()
            await asyncio.wait({call})
            assert accepted_of(errors[0]) == queue.stats().accepted > 0
            assert handler.gate is not None
            handler.gate.set()

    async def test_one_that_takes_too_long_says_so_in_the_cause(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        async with BatchQueue("q", BatchQueueConfig[int](buffer_size=3)) as queue:
            queue.add_handler(int, handler)
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(1.0):
                    await queue.produce_many(range(10))
            late = caught.value
            cut_off = late.__cause__ if HAS_CAUSE else late.__context__
            assert accepted_of(cut_off) == queue.stats().accepted > 0
            assert handler.gate is not None
            handler.gate.set()

    async def test_one_that_shutdown_ends_returns_the_number(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        queue = BatchQueue("q", BatchQueueConfig[int](buffer_size=3))
        await queue.start()
        queue.add_handler(int, handler)
        call = await full(queue)
        await queue.shutdown(0.1)
        assert await call == queue.stats().accepted


class TestRaising:
    async def test_an_iterable(self) -> None:
        def items() -> Iterator[int]:
            yield from range(7)
            raise ValueError("no more")  # noqa: EM101, TRY003

        async with BatchQueue("q", BatchQueueConfig[int]()) as queue:
            queue.add_handler(int, RecordingHandler[int]())
            with pytest.raises(ValueError, match="no more") as caught:
                await queue.produce_many(items())
            assert accepted_of(caught.value) == queue.stats().accepted == 7

    async def test_a_selector(self) -> None:
        config = BatchQueueConfig[int](
            partitions=PartitionPolicy.fixed(3),
            selector=lambda item, _: 99 if item == 5 else item % 3,
            consumer=RecordingHandler[int](),
        )
        async with BatchQueue("q", config) as queue:
            with pytest.raises(InvalidSelection) as caught:
                await queue.produce_many([*range(10)])
            assert accepted_of(caught.value) == queue.stats().accepted == 5

    async def test_a_handler_that_would_wait_for_itself(self) -> None:
        caught: list[BaseException] = []

        async def consume(_: list[int]) -> None:
            if caught:
                return
            try:
                await queue.produce_many([1] * 10)
            except WouldDeadlock as error:
                caught.append(error)

        async with BatchQueue("q", BatchQueueConfig[int](buffer_size=3)) as queue:
            queue.add_handler(int, consume)
            await queue.produce(1)
            await asyncio.sleep(1.0)
            assert accepted_of(caught[0]) == 3

    async def test_a_queue_that_is_not_started(self) -> None:
        with pytest.raises(Exception, match="not started") as caught:
            await BatchQueue[int]("q").produce_many([1])
        assert accepted_of(caught.value) == 0


# It may strike between a coroutine's being made and being awaited, as in any program.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kinds, partitions", [(1, 1), (6, 1), (6, 4)])
@pytest.mark.parametrize("waiting", [0, 1])
@pytest.mark.parametrize("selector", [by_type, round_robin])
async def test_it_is_exact_wherever_a_signal_strikes(
    kinds: int, partitions: int, waiting: int, selector: PartitionSelector[Any]
) -> None:
    def strike() -> None:
        raise KeyboardInterrupt

    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(partitions), selector=selector
    )
    chunk = [TYPES[number % kinds]() for number in range(30)]
    wrong: list[str | None] = []
    for at in range(0, 2_000, 2):
        async with BatchQueue("q", config) as queue:
            queue.add_handler(object, lambda _: None)
            await queue.produce_many([TYPES[0]()] * waiting)
            before = queue.stats().accepted
            interruption = Interruption(at, strike)
            try:
                with interruption:
                    await queue.produce_many(chunk)
            except KeyboardInterrupt as error:
                stats = check_accounts(queue)
                # One that knows of no number struck before anything was in.
                if getattr(error, "accepted", 0) != stats.accepted - before:
                    wrong.append(interruption.where)
        if not interruption.has_acted:
            assert wrong == []
            return
    pytest.fail("it never came to an end")


async def numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "items, kind",
    [(3, "an int"), (numbers(), "an async_generator")],
    ids=["item", "async"],
)
async def test_what_is_no_iterable_is_refused_in_one_sentence(
    items: object, kind: str
) -> None:
    rule = f"items must be an iterable, and no asynchronous one, got {kind}$"
    async with BatchQueue("q", BatchQueueConfig[Any](consumer=len)) as queue:
        with pytest.raises(TypeError, match=rule) as caught:
            await queue.produce_many(items)  # type: ignore[arg-type]
        assert accepted_of(caught.value) == 0


async def test_what_only_has_items_by_number_is_one() -> None:
    class Numbered:
        def __getitem__(self, index: int) -> int:
            return range(3)[index]

    handler = RecordingHandler[int]()
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        items: Any = Numbered()
        assert await queue.produce_many(items) == 3
    assert handler.items == [0, 1, 2]
