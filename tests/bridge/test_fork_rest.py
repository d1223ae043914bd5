"""Our threads rest during a fork: the child inherits no lock that one of them holds."""

import asyncio
import errno
import gc
import logging
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import BatchQueueConfig, BatchQueueError, LoopThread, in_thread
from batchqueue_async._bridge import fork_rest, loop_run
from batchqueue_async._threads.dead_loop_watchdog import LoopWatchdog
from tests.bridge.programs import Program, each_python

# From Python 3.15 on a warning that is an error makes the fork itself raise.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")

# A lock as a driver's in C: Python does not know of it, and nobody makes it anew.
DRIVER = """
taken = threading.Lock()
is_inside, may_leave = threading.Event(), threading.Event()

def write(batch):
    with taken:
        is_inside.set()
        # Of the parent it is known when it is inside; nobody signals its end.
        may_leave.wait(0.1)
    stored.extend(batch)

async def write_on_loop(batch):
    write(batch)

stored = []

def open_rows(loop_thread):
    return loop_thread.open("rows", BatchQueueConfig(consumer=HANDLER))

def fork():
    assert process_queue(open_rows).produce(1)
    is_inside.wait()
    pid = os.fork()
    if not pid:
        assert taken.acquire(timeout=30), "the lock was inherited"
        taken.release()
        assert process_queue(open_rows).produce(2)
        close_process_queues()
        os._exit(0 if stored in ([2], [1, 2]) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    close_process_queues()
    assert stored == [1]

"""


@each_python
@pytest.mark.parametrize("handler", ["write_on_loop", "in_thread(write)"])
def test_no_handler_is_inside_of_its_driver(python: Path, handler: str) -> None:
    program = DRIVER.replace("HANDLER", handler) + "fork()"
    ended = Program(program, python=python).end()
    assert (ended.status, ended.log) == (0, "")


@each_python
def test_a_fork_by_a_thread_that_is_not_the_main_one(python: Path) -> None:
    program = DRIVER.replace("HANDLER", "write_on_loop") + (
        "thread = threading.Thread(target=fork); thread.start(); thread.join()\n"
        "assert stored == [1]"
    )
    ended = Program(program, python=python).end()
    assert (ended.status, ended.log) == (0, "")


STARTING = """
import builtins

is_importing = threading.Event()
import_module = builtins.__import__

def import_slowly(name, *arguments, **more):
    if name == "anyio.from_thread" and name not in sys.modules:
        # Here the thread holds the locks of the modules that it imports.
        is_importing.set()
        time.sleep(0.2)
    return import_module(name, *arguments, **more)

def use():
    stored = []
    with LoopThread() as loop_thread:
        queue = loop_thread.open("rows", BatchQueueConfig(consumer=stored.extend))
        assert queue.produce(1)
    return stored

builtins.__import__ = import_slowly
starting = threading.Thread(target=use)
starting.start()
is_importing.wait()
pid = os.fork()
if not pid:
    signal.alarm(10)  # It would wait for ever.
    os._exit(0 if use() == [1] else 1)
assert os.waitpid(pid, 0)[1] == 0
starting.join()
"""


@each_python
def test_a_fork_while_the_first_loop_thread_starts(python: Path) -> None:
    ended = Program(STARTING, python=python).end()
    assert (ended.status, ended.log) == (0, "")


# --- in one process: the parent goes on, whatever its threads do


def fork_and_wait() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_thread_that_starts_while_others_come_to_rest_rests_too() -> None:
    """A starting one imports: a child would wait for the locks of its modules."""
    asked: list[int] = []

    class Thread:
        ident = None

        def __init__(self, number: int) -> None:
            self.number = number

        def rest(self, _: object) -> Callable[[], None]:
            asked.append(self.number)
            # While that one is waited for, a thread that is not ours starts the next.
            return self.go_on if self.number < 3 else lambda: None

        def go_on(self) -> None:
            fork_rest.remember(threads[self.number])

    threads: list[Any] = [Thread(number) for number in (1, 2, 3)]
    fork_rest.remember(threads[0])
    try:
        fork_and_wait()
    finally:
        for each in threads:
            fork_rest.forget(each)
    assert asked == [1, 2, 3]


def test_the_parent_goes_on_after_forks_by_many_threads() -> None:
    handled: list[int] = []
    with LoopThread() as loop_thread, LoopThread() as other:
        queues = [
            loop_thread.open("loop", BatchQueueConfig(consumer=handled.extend)),
            other.open("thread", BatchQueueConfig(consumer=in_thread(handled.extend))),
        ]

        def produce_and_fork() -> None:
            for number in range(5):
                for each in queues:
                    assert each.produce(number)
                fork_and_wait()

        threads = [threading.Thread(target=produce_and_fork) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(handled) == sorted([*range(5)] * 6)


@pytest.mark.parametrize("is_on_loop", [True, False])
def test_a_handler_may_fork(*, is_on_loop: bool) -> None:
    def fork(_: list[int]) -> None:
        fork_and_wait()

    async def fork_on_loop(_: list[int]) -> None:
        fork_and_wait()

    consumer = fork_on_loop if is_on_loop else in_thread(fork)
    with LoopThread() as loop_thread:
        queue = loop_thread.open("rows", BatchQueueConfig(consumer=consumer))
        assert queue.produce(1)
    assert queue.stats().handled == 1


@contextmanager
def blocked() -> Iterator[threading.Event]:
    """Something to block by, until it is set or the end."""
    may_go_on = threading.Event()
    try:
        yield may_go_on
    finally:
        may_go_on.set()


@pytest.mark.parametrize("is_on_loop", [True, False])
def test_a_handler_that_blocks_does_not_hold_up_a_fork_for_ever(
    *,
    is_on_loop: bool,
) -> None:
    is_inside = threading.Event()

    def block(_: list[int]) -> None:
        is_inside.set()
        may_go_on.wait()

    async def block_on_loop(batch: list[int]) -> None:
        block(batch)

    consumer = block_on_loop if is_on_loop else in_thread(block)
    with LoopThread() as loop_thread, blocked() as may_go_on:
        queue = loop_thread.open("rows", BatchQueueConfig(consumer=consumer))
        assert queue.produce(1)
        is_inside.wait()
        fork_and_wait()
        # It rests no more where it comes too late.
        may_go_on.set()
        queue.flush(30)
    assert queue.stats().handled == 1


SIGNALLED = """
from batchqueue_async._bridge import fork_rest

is_inside, may_leave = threading.Event(), threading.Event()

async def block(batch):
    is_inside.set()
    may_leave.wait()

def send():
    while not fork_rest._forking:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)

loop_thread = LoopThread().start()
drain_on_signals(loop_thread)
queue = loop_thread.open("rows", BatchQueueConfig(consumer=block))
queue.produce(1)
is_inside.wait()
parent = os.getpid()
threading.Thread(target=send).start()
try:
    os.fork()
    # The parent's SIGTERM is none of the child's business.
    if os.getpid() != parent:
        os._exit(0)
    time.sleep(30)
    print("lost")
finally:
    may_leave.set()
    assert os.wait()[1] == 0
"""


@each_python
def test_a_signal_that_ends_the_program_is_not_lost_in_a_fork(python: Path) -> None:
    ended = Program(SIGNALLED, python=python).end(60)
    assert (ended.status, ended.output, ended.log) == (128 + 15, "", "")


def test_a_fork_that_takes_long_is_no_silence_of_the_loop() -> None:
    """Who waits meanwhile does not take the loop for dead."""
    is_over = threading.Event()

    def hold_up() -> None:
        # Hooks of others, which come after ours; and the fork of a large process.
        fork_rest._begin()
        is_resting.set()
        is_over.wait()
        fork_rest._end()

    is_resting = threading.Event()
    with LoopThread() as loop_thread:
        loop = loop_thread.portal.call(asyncio.get_running_loop)
        watchdog = LoopWatchdog(loop, "the loop", BatchQueueError, patience=0.05)
        watchdog.wait(time.sleep, None)
        forking = threading.Thread(target=hold_up)
        forking.start()
        is_resting.wait()
        for _ in range(20):
            watchdog.wait(time.sleep, None)  # 0.01 s each.
        is_over.set()
        forking.join()


# --- what the log says where a loop did not drain


def test_the_log_says_where_a_loop_is_blocked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_inside = threading.Event()

    async def block_here(_: list[int]) -> None:
        is_inside.set()
        may_go_on.wait()

    with blocked() as may_go_on:
        loop_thread = LoopThread(shutdown_timeout=0.0, patience=0.1)
        with loop_thread:
            queue = loop_thread.open("rows", BatchQueueConfig(consumer=block_here))
            assert queue.produce(1)
            is_inside.wait()
        (line,) = [each.getMessage() for each in caplog.records]
    assert "1 items of 'rows' are left: the loop of LoopThread" in line
    assert "has not run for 0.1 s" in line
    assert "in block_here" in line
    loop_thread.stop()


@pytest.mark.timeout(30)
def test_the_log_says_that_a_loop_has_failed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asyncio_errors: list[logging.LogRecord],
) -> None:
    class Selector(selectors.DefaultSelector):
        is_failing = False

        def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401
            if self.is_failing:
                raise OSError(errno.EBADF, "somebody has closed all files")
            return super().select(timeout)

    selector = Selector()
    factory = partial(asyncio.SelectorEventLoop, selector)
    monkeypatch.setattr(loop_run, "loop_factory", lambda: factory)

    async def fail(_: list[int]) -> None:
        selector.is_failing = True
        await asyncio.sleep(0.01)

    # Nobody waits that long for a thread that has ended.
    with LoopThread(shutdown_timeout=3600) as loop_thread:
        config = BatchQueueConfig(consumer=fail, linger=60)
        queue = loop_thread.open("rows", config)
        assert queue.produce(1)
    assert "LoopThread 'batchqueue': its loop failed" in caplog.text
    assert "somebody has closed all files" in caplog.text
    # Of the tasks that could not end, either.
    gc.collect()
    asyncio_errors.clear()
