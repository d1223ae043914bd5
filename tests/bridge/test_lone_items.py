"""G1: an item that comes alone from a thread is accepted as any other one is."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    WhenFull,
    fair_by,
)
from tests.bridge.background import PATIENCE, wait_until
from tests.support.oracle import check_settled

pytestmark = pytest.mark.real_time

LINGER = 0.1
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "room for one": {"buffer_size": 1},
    "newest dropped": {"buffer_size": 1, "when_full": WhenFull.DROP_NEWEST},
    "oldest dropped": {"buffer_size": 2, "when_full": WhenFull.DROP_OLDEST},
    "batches of one": {"max_batch": 1},
    "audited": {"audit": True},
    "sizes": {"size_of": lambda _: 3, "buffer_bytes": 6, "max_batch_bytes": 3},
    "keys": {"selector": fair_by(lambda item: item % 2)},
    "lingering": {"linger": LINGER, "max_batch": 10},
}


def has_more(handled: list[int], count: int) -> bool:
    return len(handled) > count


def apart(queue: SyncBatchQueue[int], handled: list[int], count: int) -> None:
    """Put items in, each after the one before it was handled."""
    for item in range(count):
        assert queue.produce(item, PATIENCE)
        wait_until(partial(has_more, handled, item))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_each_is_handled_once_and_counted(
    settings: dict[str, Any], loop_thread: LoopThread
) -> None:
    handled: list[int] = []
    config = BatchQueueConfig[int](consumer=handled.extend, **settings)
    queue = loop_thread.open("q", config)
    apart(queue, handled, 4)
    assert handled == [0, 1, 2, 3]
    stats = queue.stats()
    assert stats.accepted == 4
    assert stats.unaccounted == 0
    check_settled(queue.queue)


def test_each_lingers_for_its_own_time(loop_thread: LoopThread) -> None:
    """Not for that of an item before it, nor for ever."""
    handled: list[int] = []
    lingered: list[float] = []
    config = BatchQueueConfig[int](consumer=handled.extend, linger=LINGER, max_batch=10)
    queue = loop_thread.open("q", config)
    for item in range(3):
        began = time.monotonic()
        assert queue.produce(item)
        wait_until(partial(has_more, handled, item))
        lingered.append(time.monotonic() - began)
        time.sleep(LINGER)
    assert all(each >= 0.9 * LINGER for each in lingered)


@pytest.mark.parametrize("put", [SyncBatchQueue.produce, SyncBatchQueue.offer])
def test_one_in_a_queue_that_is_shut_down_is_refused(
    put: Callable[[SyncBatchQueue[int], int], object], loop_thread: LoopThread
) -> None:
    queue = loop_thread.open("q", BatchQueueConfig[int](consumer=lambda _: None))
    assert put(queue, 1)
    queue.shutdown()
    assert not put(queue, 2)
    check_settled(queue.queue)


def test_two_queues_on_one_loop_wake_it_for_each(loop_thread: LoopThread) -> None:
    handled: list[list[int]] = [[], []]
    queues = [
        loop_thread.open(f"q{number}", BatchQueueConfig[int](consumer=each.extend))
        for number, each in enumerate(handled)
    ]
    threads = [
        threading.Thread(target=apart, args=(queue, each, 50))
        for queue, each in zip(queues, handled, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert handled == [[*range(50)]] * 2
