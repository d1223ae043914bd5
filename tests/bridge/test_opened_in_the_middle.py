"""A `LoopThread` may be started within a line of log, or have something collected."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    close_process_queues,
    process_queue,
)
from tests.bridge.programs import Program, each_python

PROGRAM = """
sys.modules["uvloop"] = None  # asyncio's own loop has a line at DEBUG, as it is made.
sent = []

def open_lines(loop_thread):
    return loop_thread.open("lines", BatchQueueConfig(consumer=in_thread(sent.extend)))

class Shipping(logging.Handler):
    def emit(self, record):  # Under the handler's own lock.
        process_queue(open_lines).offer(record.getMessage())

logging.getLogger().handlers = [Shipping(level=logging.DEBUG)]
logging.getLogger().setLevel(logging.DEBUG)
logging.info("an order")
asyncio.run(asyncio.sleep(0))
process_queue(open_lines).flush(timeout=10)
print(sent)
"""


@each_python
def test_a_logging_handler_may_be_the_first_to_use_a_queue(python: Path) -> None:
    with Program(PROGRAM, python=python) as program:
        ended = program.end(within=20)
    assert (ended.status, ended.log) == (0, "")
    # Other threads' loops are told of.
    assert ended.output.startswith("['an order', 'Using selector: ")
    assert ended.output.count("Using") == 1


handled: list[int] = []


def open_numbers(loop_thread: LoopThread) -> SyncBatchQueue[int]:
    config = BatchQueueConfig[int](consumer=handled.extend, linger=60)
    return loop_thread.open("numbers", config)


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    handled.clear()
    yield
    close_process_queues()


COLLECTED = """
from batchqueue_async._bridge import loop_run
handled = []

def open_numbers(loop_thread):
    return loop_thread.open("numbers", BatchQueueConfig(consumer=handled.extend))

def collect():
    # As a `__del__` does; the exception that it raises goes no further.
    try:
        process_queue(open_numbers).offer(0)
    except BatchQueueError as error:
        print(error)

loop_run.loop_factory = collect  # It is called on the thread that starts.
assert process_queue(open_numbers).produce(1)
close_process_queues()
print(handled)
"""


def test_what_a_starting_loop_collects_does_not_wait_for_it() -> None:
    with Program(COLLECTED) as program:
        ended = program.end(within=20)
    assert (ended.status, ended.log) == (0, "")
    assert ended.output.endswith("is opening its queue: it waits for this thread\n[1]")


def test_what_is_collected_while_a_queue_is_opened_may_open_it() -> None:
    threads = threading.active_count()
    begun: list[int] = []

    def make() -> LoopThread:
        if not begun:
            begun.append(1)
            assert process_queue(open_numbers, make_loop_thread=make).produce(1)
        return LoopThread()

    queue = process_queue(open_numbers, make_loop_thread=make)
    assert queue.produce(2)
    assert process_queue(open_numbers) is queue
    # Before an `os._exit`: what the inner call has accepted is handled, too.
    close_process_queues()
    assert handled == [1, 2]
    assert threading.active_count() == threads
