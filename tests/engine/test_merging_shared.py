"""A `Merging` that several queues share: the receipt of each is for its own items."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    Merging,
    WouldDeadlock,
)

Queue = BatchQueue[str]


class Sink:
    """A `then` that takes two seconds, and fails as often as it is told."""

    def __init__(self, fails: int = 0) -> None:
        self.stored: list[str] = []
        self.is_inside = asyncio.Event()
        self.fails = fails

    async def __call__(self, words: list[str]) -> None:
        self.is_inside.set()
        await asyncio.sleep(2)
        if self.fails:
            self.fails -= 1
            msg = "down"
            raise OSError(msg)
        self.stored.extend(words)


def merging(sink: Callable[[list[str]], Any]) -> Merging[str]:
    return Merging[str](key=str, merge=max, then=sink, every=1.0)


@asynccontextmanager
async def handed_on_by_one(sink: Sink) -> AsyncIterator[tuple[Queue, Queue]]:
    """Two queues; one hands on what both have merged."""
    config = BatchQueueConfig[str](consumer=merging(sink))
    async with Queue("one", config) as one, Queue("other", config) as other:
        await other.produce("of the other")
        await asyncio.sleep(0.1)
        await one.produce("of one")
        await sink.is_inside.wait()
        yield one, other


@pytest.mark.parametrize("receipt", [Queue.flush, Queue.close])
@pytest.mark.parametrize("which", [0, 1])
async def test_a_receipt_is_for_what_another_queue_hands_on(
    receipt: Callable[[Queue], Any], which: int
) -> None:
    sink = Sink()
    async with handed_on_by_one(sink) as queues:
        await receipt(queues[which])
        assert sorted(sink.stored) == ["of one", "of the other"]


async def test_what_another_queue_fails_to_hand_on_is_tried_by_the_flush() -> None:
    sink = Sink(fails=1)
    async with handed_on_by_one(sink) as queues:
        await asyncio.gather(*(queue.flush() for queue in queues))
        assert sorted(sink.stored) == ["of one", "of the other"]


async def test_a_flush_has_the_error_of_what_another_queue_failed_to_hand_on() -> None:
    sink = Sink(fails=2)
    async with handed_on_by_one(sink) as queues:
        answers = await asyncio.gather(
            *(queue.flush() for queue in queues), return_exceptions=True
        )
        assert any(isinstance(answer, DeliveryError) for answer in answers)


async def test_what_one_queue_leaves_at_its_end_the_other_hands_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log said that it was lost."""
    sink = Sink(fails=2)
    async with handed_on_by_one(sink) as (one, other):
        await one.close()
        assert one.stats().not_closed
        says = "2 merged items were not handed on: they are lost, unless another queue"
        assert says in caplog.text
        await other.flush()
        assert sorted(sink.stored) == ["of one", "of the other"]
    assert not other.stats().not_closed


async def test_nobody_waits_for_himself_by_way_of_what_another_hands_on() -> None:
    """One waits for room in `then`, whose handler flushes the other."""
    refused: list[BaseException | None] = []
    stored: list[str] = []
    is_full = asyncio.Event()

    async def store(words: list[str]) -> None:
        stored.extend(words)
        await is_full.wait()
        if not refused:
            # Of the flush, or of the `on_flush` that it waits for: an eager task's wait
            # is there first.
            with pytest.raises((DeliveryError, WouldDeadlock)) as caught:
                await other.flush()
            refused.append(caught.value)

    then = BatchQueueConfig[str](consumer=store, buffer_size=1, max_batch=1)
    async with Queue("then", then) as sink:
        shared = Merging[str](key=str, merge=max, then=sink)
        config = BatchQueueConfig[str](consumer=shared)
        other = Queue("other", config)
        async with Queue("one", config) as one:
            await one.produce_many("abcd")
            while not sink.stats().waiting_producers:  # noqa: ASYNC110 - one hands on
                await asyncio.sleep(0.01)
            async with other:
                is_full.set()
                await one.flush(timeout=10)
            await sink.flush(timeout=10)
    assert stored == [*"abcd"]
    (error,) = refused
    if isinstance(error, DeliveryError):
        (failure,) = error.failures
        error = failure.error
    assert isinstance(error, WouldDeadlock)


@pytest.mark.real_time
def test_a_flush_does_not_wait_for_a_loop_that_has_ended() -> None:
    hits = merging(Sink())
    ended = asyncio.new_event_loop()
    ended.run_until_complete(hits.consume(["lost"]))
    task = ended.create_task(hits.on_flush())
    ended.run_until_complete(asyncio.sleep(0))
    asyncio.run(asyncio.wait_for(hits.on_flush(), 10))
    task.cancel()
    ended.run_until_complete(asyncio.wait([task]))
    ended.close()
