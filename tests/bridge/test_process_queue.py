"""One queue per process: every row that was accepted anywhere is in the database."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    SyncBatchQueue,
    close_process_queues,
    process_queue,
)
from batchqueue_async._bridge.process_queue import OpenQueue
from tests.bridge.background import PATIENCE, answers, in_background
from tests.bridge.programs import PREFACE, Program, each_python

request = ContextVar("request", default="")

# Not SQLite: it minds forks while a connection is open, in any thread.
POSTGRES = """
import asyncpg

class Rows:
    connection = None

    async def consume(self, batch):
        if self.connection is None:
            self.connection = await asyncpg.connect(sys.argv[1])
        await self.connection.copy_records_to_table(sys.argv[2], records=batch)

    async def on_close(self):
        if self.connection is not None:
            await self.connection.close()
"""

FILE = """
class Rows:
    async def consume(self, batch):
        file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b"".join(b"%d\\n" % each for each in batch))
        os.close(file)
"""

COMMON = """
import multiprocessing

def open_rows(loop_thread):
    config = BatchQueueConfig(consumer=Rows(), linger=0.05, buffer_size=50)
    return loop_thread.open("rows", config)

def produce(count):
    # Each call asks for the queue, as the request of a web server would.
    accepted = 0
    for _ in range(count):
        accepted += process_queue(open_rows).produce((os.getpid(),))
    return accepted
"""

PREFORK = """
def serve(ending):
    accepted = []
    threads = [
        threading.Thread(target=lambda: accepted.append(produce(100)))
        for _ in range(2)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    os.write(told, b"%d\\n" % sum(accepted))
    if ending == "SIGTERM":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        os.kill(os.getpid(), signal.SIGTERM)
    elif ending == "os._exit":
        close_process_queues()
        os._exit(0)
    sys.exit(0)

# Preloaded: the parent's queue runs, and has items, when it forks.
accepted = produce(30)
answers, told = os.pipe()
workers, endings = {}, ["exit", "SIGTERM", "os._exit", "exit"] * 3
while endings or workers:
    # Four at a time, and each that has ended is replaced.
    while endings and len(workers) < 4:
        ending = endings.pop()
        pid = os.fork()
        if not pid:
            serve(ending)
        workers[pid] = ending
        accepted += produce(1)
    pid, status = os.wait()
    assert status == 0, (workers[pid], status)
    del workers[pid]
os.close(told)
with open(answers) as lines:
    accepted += sum(map(int, lines))
print(accepted, flush=True)
"""


@each_python
def test_a_prefork_server_that_recycles_its_workers(
    python: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    ended = Program(FILE + COMMON + PREFORK, "", str(rows), python=python).end(50)
    assert (ended.status, ended.log) == (0, "")
    stored = len(rows.read_text().splitlines())
    assert int(ended.output) == stored == 30 + 12 + 12 * 200


def test_a_prefork_server_with_a_connection_per_process(postgres_dsn: str) -> None:
    with counted_table(postgres_dsn, "prefork") as count:
        program = Program(POSTGRES + COMMON + PREFORK, postgres_dsn, "prefork")
        ended = program.end(50)
        assert (ended.status, ended.log) == (0, "")
        assert int(ended.output) == count() == 30 + 12 + 12 * 200


@contextmanager
def counted_table(dsn: str, name: str) -> Iterator[Callable[[], int]]:
    """A table of this name, and what counts its rows."""

    def run(statement: str) -> int:
        async def query() -> Any:  # noqa: ANN401
            connection = await asyncpg.connect(dsn)
            try:
                return await connection.fetchval(statement)
            finally:
                await connection.close()

        return asyncio.run(query()) or 0

    run(f"CREATE TABLE {name} (process INTEGER)")
    try:
        yield lambda: run(f"SELECT count(*) FROM {name}")
    finally:
        run(f"DROP TABLE {name}")


PROCESSES = """
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    accepted = produce(10)
    # Each worker ends after two tasks, and a new one takes its place.
    with context.Pool(2, maxtasksperchild=2) as pool:
        accepted += sum(pool.map(produce, [50] * 8, chunksize=1))
        pool.close()
        pool.join()
    process = context.Process(target=produce, args=(100,))
    process.start()
    process.join()
    print(accepted + 100 if process.exitcode == 0 else "failed", flush=True)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_in_each_method(
    method: str, postgres_dsn: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PREFACE + POSTGRES + COMMON + PROCESSES)
    with counted_table(postgres_dsn, method) as count:
        ended = Program(program, postgres_dsn, method).end(50)
        assert (ended.status, ended.log) == (0, "")
        assert int(ended.output) == count() == 10 + 400 + 100


FORKED_WHILE_OPENING = """
begun = threading.Event()

def open_slowly(loop_thread):
    begun.set()
    time.sleep(0.3)
    return open_rows(loop_thread)

opening = threading.Thread(target=process_queue, args=(open_slowly,))
opening.start()
begun.wait()
pid = os.fork()
if not pid:
    begun.set()
    assert process_queue(open_slowly).produce((1,))
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
opening.join()
assert process_queue(open_slowly).produce((2,))
"""


@each_python
def test_a_fork_while_another_thread_opens(python: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    program = Program(
        FILE + COMMON + FORKED_WHILE_OPENING, "", str(rows), python=python
    )
    ended = program.end()
    assert (ended.status, ended.log) == (0, "")
    assert sorted(rows.read_text().split()) == ["1", "2"]


# --- in one process

handled: list[int] = []


def open_numbers(loop_thread: LoopThread) -> SyncBatchQueue[int]:
    return loop_thread.open("numbers", BatchQueueConfig(consumer=handled.extend))


def open_feeder(loop_thread: LoopThread) -> SyncBatchQueue[int]:
    async def feed(batch: list[int]) -> None:
        process_queue(open_numbers).produce_many([10 * each for each in batch])

    return loop_thread.open("feeder", BatchQueueConfig(consumer=feed, linger=60))


def open_badly(_: LoopThread) -> SyncBatchQueue[int]:
    msg = "no way to open"
    raise RuntimeError(msg)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    handled.clear()
    yield
    close_process_queues()


def test_all_threads_get_one_queue_that_is_opened_once() -> None:
    queues = answers([in_background(process_queue, open_numbers) for _ in range(8)])
    assert len({id(each) for each in queues}) == 1
    assert process_queue(open_numbers) is queues[0]


def test_handlers_run_in_no_context_of_the_caller_that_came_first() -> None:
    opened_in, handled_in = [], []

    async def store(batch: list[int]) -> None:
        handled_in.append(request.get())

    def open_store(loop_thread: LoopThread) -> SyncBatchQueue[int]:
        opened_in.append(request.get())
        return loop_thread.open("store", BatchQueueConfig(consumer=store))

    for name in ("first", "second"):
        copy_context().run(_produce_as, name, open_store)
    # What it opens may be what the caller's context says: a framework's settings.
    assert opened_in == ["first"]
    assert handled_in == ["", ""]


def _produce_as(name: str, open_queue: OpenQueue[int]) -> None:
    request.set(name)
    queue = process_queue(open_queue)
    assert queue.produce(1)
    queue.flush(timeout=PATIENCE)


def test_closing_drains_and_the_next_call_opens_anew() -> None:
    first = process_queue(open_numbers)
    assert first.produce_many(range(100)) == 100
    close_process_queues([open_feeder])
    assert first.produce(100)
    close_process_queues()
    assert handled == list(range(101))
    assert not first.is_running
    second = process_queue(open_numbers)
    assert second is not first
    second.shutdown()
    assert process_queue(open_numbers).produce(1)


@dataclass
class Client:
    """Of a library, made by its users: all of them are equal."""

    sent: list[str] = field(default_factory=list, compare=False)

    def open(self, loop_thread: LoopThread) -> SyncBatchQueue[str]:
        return loop_thread.open("q", BatchQueueConfig(consumer=self.sent.extend))

    def capture(self, event: str) -> bool:
        return process_queue(self.open).produce(event)


def test_an_objects_method_opens_a_queue_for_each_object() -> None:
    one, other = Client(), Client()
    assert one == other
    assert one.capture("one")
    assert other.capture("two")
    others = process_queue(other.open)
    close_process_queues([one.open])
    assert process_queue(other.open) is others
    close_process_queues([other.open])
    assert (one.sent, other.sent) == (["one"], ["two"])
    # Nothing keeps an object whose queue is closed.
    known = weakref.ref(one)
    del one
    gc.collect()
    assert known() is None


def test_what_closing_opens_is_closed_too() -> None:
    threads = threading.active_count()
    process_queue(open_numbers)
    assert process_queue(open_feeder).produce(1)
    # In vain for what comes out of the feeder, which lingers.
    close_process_queues([open_numbers])
    close_process_queues()
    assert handled == [10]
    assert threading.active_count() == threads


def test_a_loop_that_starts_opens_another_queue() -> None:
    # As its first log line does, where logs go through a `BatchingHandler`.
    def open_and_tell(loop_thread: LoopThread) -> SyncBatchQueue[int]:
        offered = loop_thread.portal.call(lambda: process_queue(open_numbers).offer(7))
        assert offered
        return loop_thread.open("told", BatchQueueConfig(consumer=handled.extend))

    (queue,) = answers([in_background(process_queue, open_and_tell)], 10.0)
    assert queue.produce(8)
    close_process_queues()
    assert sorted(handled) == [7, 8]


def test_closing_waits_for_a_queue_that_is_being_opened() -> None:
    begun, gate = threading.Event(), threading.Event()

    def open_slowly(loop_thread: LoopThread) -> SyncBatchQueue[int]:
        begun.set()
        assert gate.wait(PATIENCE)
        queue = open_numbers(loop_thread)
        queue.produce(1)
        return queue

    opening = in_background(process_queue, open_slowly)
    assert begun.wait(PATIENCE)
    closing = in_background(close_process_queues)
    with pytest.raises(TimeoutError):
        closing.result(0.1)
    gate.set()
    answers([closing])
    assert not answers([opening])[0].is_running
    assert handled == [1]


def test_closing_ends_though_threads_go_on_producing() -> None:
    accepted, is_over = [0, 0, 0, 0], threading.Event()

    def go_on(index: int, *open_queues: OpenQueue[int]) -> None:
        while not is_over.wait(0.001):
            for each in open_queues:
                accepted[index] += process_queue(each).produce(1)

    async def take(batch: list[int]) -> None:
        # While one is closed the other one would be opened anew.
        await asyncio.sleep(0.1)
        handled.extend(batch)

    def open_slow(loop_thread: LoopThread) -> SyncBatchQueue[int]:
        return loop_thread.open("slow", BatchQueueConfig(consumer=take))

    def open_others(loop_thread: LoopThread) -> SyncBatchQueue[int]:
        return loop_thread.open("others", BatchQueueConfig(consumer=take))

    threads = [in_background(go_on, n, open_slow, open_others) for n in range(4)]
    while not handled:
        time.sleep(0.001)
    closing = in_background(close_process_queues)
    try:
        answers([closing], 5.0)
    finally:
        is_over.set()
        answers(threads)
    # What was opened anew after that.
    close_process_queues()
    assert len(handled) == sum(accepted)


def test_a_loop_thread_to_ones_liking() -> None:
    made: list[LoopThread] = []

    def make() -> LoopThread:
        made.append(LoopThread("mine", shutdown_timeout=1.0))
        return made[-1]

    queue = process_queue(open_numbers, make_loop_thread=make)
    assert process_queue(open_numbers, make_loop_thread=make) is queue
    assert [queue.loop_thread] == made


def test_what_opening_raises_is_raised_and_nothing_stays() -> None:
    threads = threading.active_count()
    with pytest.raises(RuntimeError, match="no way to open"):
        process_queue(open_badly)
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    "value, message",
    [
        (lambda _: None, "must return a SyncBatchQueue, got None"),
        (5, "open_queue must be callable.*, got 5"),
        ([], "open_queue must be callable"),
    ],
)
def test_what_opens_no_queue_is_refused(
    value: Any,  # noqa: ANN401
    message: str,
) -> None:
    threads = threading.active_count()
    with pytest.raises(TypeError, match=message):
        process_queue(value)
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    "make, message",
    [
        (LoopThread(), "make_loop_thread must be callable, got <LoopThread"),
        (int, "what make_loop_thread returns must be a LoopThread, got 0"),
    ],
)
def test_what_makes_no_loop_thread_is_refused(
    make: Any,  # noqa: ANN401
    message: str,
) -> None:
    def open_rows(_: LoopThread) -> SyncBatchQueue[int]:
        raise AssertionError

    with pytest.raises(TypeError, match=f"^{message}"):
        process_queue(open_rows, make_loop_thread=make)


def test_one_that_is_to_be_closed_comes_in_an_iterable() -> None:
    def open_rows(_: LoopThread) -> SyncBatchQueue[int]:
        raise AssertionError

    rule = r"^open_queues must be an iterable of what opens them, as in \[open_rows\]"
    with pytest.raises(TypeError, match=rule):
        close_process_queues(open_rows)  # type: ignore[arg-type]


def test_a_queue_of_another_loop_thread_is_refused() -> None:
    """It would not be closed before an `os._exit`: its items would be lost."""
    threads = threading.active_count()
    with LoopThread() as other:

        def open_elsewhere(_: LoopThread) -> SyncBatchQueue[int]:
            return other.open("rows", BatchQueueConfig(consumer=print))

        rule = "^the queue of open_queue must be one that it opened on the LoopThread"
        with pytest.raises(ValueError, match=rule):
            process_queue(open_elsewhere)
    assert threading.active_count() == threads
