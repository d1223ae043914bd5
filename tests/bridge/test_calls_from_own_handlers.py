"""A `LoopThread` never waits for itself: it refuses on its loop, begins on a thread."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
    SyncBatchQueue,
    close_process_queues,
    in_thread,
    process_queue,
)
from tests.bridge.background import PATIENCE

Verb = Callable[[LoopThread], object]


def opened(
    verb: Verb, told: list[str], *, on_thread: bool
) -> Callable[[LoopThread], Any]:
    """Return what opens a queue whose handler calls the verb, for `process_queue`."""

    def open_queue(loop_thread: LoopThread) -> SyncBatchQueue[int]:
        def consume(_: list[int]) -> None:
            try:
                verb(loop_thread)
            except BatchQueueError as error:
                told.append(str(error))

        handler = in_thread(consume) if on_thread else consume
        return loop_thread.open("q", BatchQueueConfig[int](consumer=handler))

    return open_queue


VERBS: dict[str, Verb] = {
    "open": lambda loop_thread: loop_thread.open("another"),
    "stop": lambda loop_thread: loop_thread.stop(),
    "flush": lambda loop_thread: loop_thread.flush(),
    "leaving": lambda loop_thread: loop_thread.__exit__(None, None, None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_on_its_loop_it_refuses_at_once(verb: str) -> None:
    told: list[str] = []
    with LoopThread("a name", shutdown_timeout=PATIENCE) as loop_thread:
        queue = opened(VERBS[verb], on_thread=False, told=told)(loop_thread)
        queue.produce_many([1])
        queue.flush(PATIENCE)
    assert told == [
        f"{verb} of LoopThread 'a name' on its own loop would never end",
    ]


def test_leaving_it_on_a_handlers_thread_only_begins() -> None:
    returned = threading.Event()

    def leave(loop_thread: LoopThread) -> None:
        loop_thread.__exit__(None, None, None)
        returned.set()

    loop_thread = LoopThread(shutdown_timeout=PATIENCE).start()
    queue = opened(leave, on_thread=True, told=[])(loop_thread)
    queue.produce(1)
    assert returned.wait(PATIENCE)
    loop_thread.stop()
    assert queue.stats().handled == 1


def close(_: LoopThread) -> None:
    close_process_queues()


def test_process_queues_are_not_closed_on_their_own_loop() -> None:
    told: list[str] = []
    queue = process_queue(open_queue := opened(close, on_thread=False, told=told))
    queue.produce(1)
    queue.flush(PATIENCE)
    assert len(told) == 1
    # It is still known, and open.
    assert process_queue(open_queue) is queue
    close_process_queues()
    assert queue.stats().handled == 1


def test_process_queues_begin_to_close_on_a_handlers_thread() -> None:
    told: list[str] = []
    returned = threading.Event()
    kept: list[LoopThread] = []

    def close_all(loop_thread: LoopThread) -> None:
        close_process_queues()
        kept.append(loop_thread)
        returned.set()

    queue = process_queue(opened(close_all, on_thread=True, told=told))
    queue.produce(1)
    assert returned.wait(PATIENCE)
    kept[0].stop()
    assert told == []
    assert queue.stats().handled == 1
