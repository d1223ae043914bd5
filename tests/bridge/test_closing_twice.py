"""`close_process_queues`, called while another call of it has not ended."""

import threading
from collections.abc import Iterator

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    close_process_queues,
    in_thread,
    process_queue,
)
from tests.bridge.background import PATIENCE, answers, in_background, wait_until

handled: list[int] = []
gate = threading.Event()
closed_by_handler = threading.Event()


def take(batch: list[int]) -> None:
    assert gate.wait(PATIENCE)
    handled.extend(batch)


def close_and_take(batch: list[int]) -> None:
    close_process_queues()
    take(batch)


def take_and_close(batch: list[int]) -> None:
    take(batch)
    close_process_queues()
    closed_by_handler.set()


def open_gated(loop_thread: LoopThread) -> SyncBatchQueue[int]:
    return loop_thread.open("gated", BatchQueueConfig(consumer=in_thread(take)))


def open_closing(loop_thread: LoopThread) -> SyncBatchQueue[int]:
    config = BatchQueueConfig(consumer=in_thread(close_and_take))
    return loop_thread.open("closing", config)


def open_closing_late(loop_thread: LoopThread) -> SyncBatchQueue[int]:
    config = BatchQueueConfig(consumer=in_thread(take_and_close))
    return loop_thread.open("late", config)


class Struck(LoopThread):
    """Its first end is interrupted, as by a signal handler that raises."""

    is_struck = False

    def __exit__(self, *error: object) -> None:
        if not self.is_struck:
            self.is_struck = True
            raise KeyboardInterrupt
        super().__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    handled.clear()
    gate.clear()
    closed_by_handler.clear()
    yield
    gate.set()
    close_process_queues()


def assert_waits() -> None:
    """An `os._exit` may follow the second call."""
    closing = in_background(close_process_queues)
    with pytest.raises(TimeoutError):
        closing.result(0.1)
    gate.set()
    answers([closing])
    assert handled == [1]


def test_a_second_call_waits_for_what_the_first_one_closes() -> None:
    queue = process_queue(open_gated)
    queue.produce(1)
    first = in_background(close_process_queues)
    wait_until(lambda: not queue.is_running)
    assert_waits()
    answers([first])


def test_a_call_waits_for_what_a_handler_has_begun_to_close() -> None:
    queue = process_queue(open_closing)
    queue.produce(1)
    wait_until(lambda: not queue.is_running)
    assert_waits()


def test_two_handlers_do_not_wait_for_each_other() -> None:
    late = process_queue(open_closing_late)
    late.produce(1)
    process_queue(open_closing).produce(2)
    # The other one's handler closes both, and waits for the end of this one.
    wait_until(lambda: not late.is_running)
    gate.set()
    assert closed_by_handler.wait(PATIENCE / 2)


def test_a_call_waits_for_what_an_interrupted_one_has_left() -> None:
    process_queue(open_gated, make_loop_thread=Struck).produce(1)
    with pytest.raises(KeyboardInterrupt):
        close_process_queues()
    assert_waits()


def test_of_several_only_those_that_are_wanted_are_waited_for() -> None:
    process_queue(open_gated).produce(1)
    first = in_background(close_process_queues)
    wait_until(lambda: not process_queue(open_gated).is_running)
    answers([in_background(close_process_queues, [open_closing])])
    assert_waits()
    answers([first])
