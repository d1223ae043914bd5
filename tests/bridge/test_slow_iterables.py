"""Bulk verbs do not hold back what a slow iterator has given."""

import time
from collections.abc import Iterator

import pytest

from batchqueue_async import BatchQueueConfig, LoopThread, WhenFull, _chunks
from batchqueue_async.ring import Disruptor, RingBuffer, SyncRing
from tests.bridge.background import wait_until

pytestmark = pytest.mark.real_time


def slowly(seen: list[int], count: int) -> Iterator[int]:
    """Give an item once those before it were handled, and a while has passed."""
    for number in range(count):
        wait_until(lambda: seen == [*range(number)])  # noqa: B023 - it waits here
        time.sleep(0.02)
        yield number


@pytest.mark.parametrize("when_full", WhenFull)
def test_each_item_is_handled_while_the_next_one_is_made(when_full: WhenFull) -> None:
    seen: list[int] = []
    config = BatchQueueConfig[int](consumer=seen.extend, when_full=when_full)
    with LoopThread() as loop_thread:
        queue = loop_thread.open("slow", config)
        assert queue.produce_many(slowly(seen, 4)) == 4
        queue.flush()
    assert seen == [0, 1, 2, 3]


class Number:
    value = -1


def fill(event: Number, sequence: int, value: int) -> None:
    event.value = value


def test_so_is_each_event_of_a_ring() -> None:
    seen: list[int] = []

    async def opened() -> tuple[Disruptor[Number], RingBuffer[Number]]:
        disruptor = Disruptor(Number, 64)
        disruptor.handle_events_with(
            lambda event, sequence, end: seen.append(event.value)
        )
        return disruptor, await disruptor.start()

    async def threads(ring: RingBuffer[Number]) -> SyncRing[Number]:
        return SyncRing(ring)

    with LoopThread() as loop_thread:
        queue = loop_thread.open("beside", BatchQueueConfig[int](consumer=seen.extend))
        disruptor, ring = queue.call(opened)
        queue.call(threads, ring).publish_events(fill, slowly(seen, 4))
        queue.call(disruptor.shutdown)
    assert seen == [0, 1, 2, 3]


def test_what_is_quick_or_has_a_length_comes_in_full_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    def ticking() -> float:
        nonlocal now
        now += 0.006
        return now

    monkeypatch.setattr(_chunks, "monotonic", lambda: 0.0)
    lengths = [len(each) for each in _chunks.chunks(iter(range(700)), 300)]
    assert lengths == [300, 300, 100]
    monkeypatch.setattr(_chunks, "monotonic", ticking)
    lengths = [len(each) for each in _chunks.chunks(range(700), 300)]
    assert lengths == [300, 300, 100]
    lengths = [len(each) for each in _chunks.chunks(iter(range(10)), 300)]
    assert lengths == [5, 5]
