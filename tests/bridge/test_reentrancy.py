"""A `__del__` that produces: the collector runs it in the middle of anything."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    WhenFull,
)
from tests.bridge.background import PATIENCE, in_background, until
from tests.bridge.gated import partition_of
from tests.support.oracle import check_settled

Bridge = SyncBatchQueue[Any]


class LastWords:
    """Produces when it is collected, and leaves another one of its kind."""

    queue: ClassVar[Bridge | None] = None
    accepted: ClassVar[list[int]] = []
    waiting: ClassVar[list[int]] = []
    errors: ClassVar[list[BaseException]] = []

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        queue = LastWords.queue
        if queue is None:
            return
        try:
            if queue.produce(-1 - len(LastWords.accepted), timeout=0):
                LastWords.accepted.append(-1 - len(LastWords.accepted))
            LastWords.waiting.append(len(partition_of(queue).items))
        except BaseException as error:  # noqa: BLE001 - nobody else would see it
            LastWords.errors.append(error)
        LastWords()


@pytest.fixture
def loop_thread(patience: None) -> Iterator[LoopThread]:
    """One kind of loop: what is tested here runs on other threads."""
    with LoopThread(shutdown_timeout=5.0) as running:
        yield running


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Collect at almost every allocation."""
    LastWords.accepted.clear()
    LastWords.waiting.clear()
    LastWords.errors.clear()
    before = gc.get_threshold()
    gc.set_threshold(1, 1_000_000, 1_000_000)
    yield
    gc.set_threshold(*before)
    LastWords.queue = None
    gc.collect()


@pytest.mark.usefixtures("eager_collector")
@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("buffer_size", [1, 4])
def test_last_words_find_the_queue_in_order(
    loop_thread: LoopThread, when_full: WhenFull, buffer_size: int
) -> None:
    batches: list[int] = []

    async def consume(batch: list[int]) -> None:
        batches.append(len(batch))
        await asyncio.sleep(0)

    config = BatchQueueConfig[Any](buffer_size=buffer_size, when_full=when_full)
    queue: Bridge = loop_thread.open("q", config, {int: consume})
    LastWords.queue = queue
    for _ in range(5):
        LastWords()

    def produce(first: int) -> int:
        accepted = 0
        for item in range(first, first + 24, 4):
            accepted += queue.produce(item, timeout=5)
            accepted += queue.produce_many([item + 1, item + 2, item + 3], timeout=5)
        return accepted

    calls = [in_background(produce, n * 1000) for n in range(2)]
    accepted = sum(each.result(PATIENCE) for each in calls)
    LastWords.queue = None
    assert not LastWords.errors
    assert len(LastWords.waiting) > 100
    assert max(LastWords.waiting) <= buffer_size
    assert queue.shutdown(10) == []
    # Only now: producers that drop can be done before the loop's first turn.
    assert max(batches) <= buffer_size
    stats = check_settled(queue)
    assert stats.accepted == accepted + len(LastWords.accepted)
    assert stats.handled == sum(batches) == stats.accepted - stats.dropped


def test_an_item_that_is_displaced_may_have_last_words(loop_thread: LoopThread) -> None:
    """It dies inside of the queue, if it is one of many."""

    class Mortal:
        def __del__(self) -> None:
            if threading.current_thread().name == "test" and queue is not None:
                words.append(queue.produce(1, timeout=0))

    words: list[bool] = []
    held = threading.Event()

    async def consume(_: list[Any]) -> None:
        await until(held.is_set)

    config = BatchQueueConfig[Any](
        buffer_size=2, when_full=WhenFull.DROP_OLDEST, consumer=consume
    )
    queue: Bridge | None = loop_thread.open("q", config)
    assert queue is not None

    def produce(bridge: Bridge) -> None:
        for _ in range(300):
            assert bridge.produce(Mortal())

    in_background(produce, queue).result(10)
    assert len(partition_of(queue).items) <= 2
    assert words
    assert all(words)
    held.set()
    assert queue.shutdown(10) == []
    check_settled(queue)
    queue = None
