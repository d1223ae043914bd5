"""A forked child of a program whose `LoopThread` runs: every call ends, and says so."""

from pathlib import Path

import pytest

from tests.bridge.programs import PREFACE, Program, each_python

FORK = """
handled = []

async def consume(batch):
    await asyncio.sleep(0.01)
    handled.extend(batch)

def pound():
    # Blocked most of the time; else it holds the lock.
    while not is_over.is_set():
        queue.produce(1, timeout=0.2)

def refused(name, call):
    began = time.monotonic()
    try:
        call()
    except BatchQueueError as error:
        answer = "parent process's" in str(error) and "child makes" in str(error)
    else:
        answer = False
    if not answer or time.monotonic() - began > 1.0:
        print("wrong", name, flush=True)

def use_all():
    portal = kept_portal
    for name, call in {
        "produce": lambda: queue.produce(1),
        "produce in time": lambda: queue.produce(1, timeout=5),
        "another type": lambda: queue.produce("text"),
        "produce_many": lambda: queue.produce_many([1, 2]),
        "flush": queue.flush,
        "add_handler": lambda: queue.add_handler(str, print),
        "remove_handler": lambda: queue.remove_handler(int),
        "shutdown": queue.shutdown,
        "open": lambda: held.open("other"),
        "portal": lambda: held.portal,
        "the portal of before": lambda: portal.call(print),
        "its tasks": lambda: portal.start_task(asyncio.sleep, 0),
        "its calls from a loop": lambda: asyncio.run(
            # Of anyio 4.16 and later.
            getattr(portal, "call_async", portal.call)(print)
        ),
        "start": held.start,
        "stop": held.stop,
        "enter": held.__enter__,
    }.items():
        refused(name, call)
    stats = queue.stats()
    assert (stats.accepted, stats.waiting, queue.is_running) == (0, 0, False)
    with LoopThread() as own:
        mine = own.open("own", None, {int: in_thread(lambda batch: None)})
        assert mine.produce_many(range(10)) == 10
        mine.flush(10)
        assert mine.stats().handled == 10

is_over = threading.Event()
with LoopThread() as held:
    kept_portal = held.portal
    queue = held.open("rows", BatchQueueConfig(buffer_size=20), {int: consume})
    threads = [threading.Thread(target=pound) for _ in range(3)]
    for each in threads:
        each.start()
    time.sleep(0.1)
    is_child = False
    for _ in range(5):
        pid = os.fork()
        if not pid:
            is_child = True
            break
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    if is_child:
        use_all()
    else:
        is_over.set()
        for each in threads:
            each.join()
        queue.flush(10)
        assert queue.stats().handled == queue.stats().accepted == len(handled) > 0
        print("the parent goes on", flush=True)
# The child falls out of the block, and then ends as a program does.
if is_child:
    sys.exit(5)
"""


@each_python
def test_each_call_in_a_child_ends_at_once(python: Path) -> None:
    ended = Program(FORK, python=python).end()
    assert (ended.status, ended.output) == (0, "the parent goes on"), ended.log
    assert ended.log.count("a forked child makes one of its own") == 5


PROCESSES = """
import multiprocessing

held = LoopThread("parent's").start() if __name__ == "__main__" else None

def work(number):
    with LoopThread("child's") as own:
        results = []
        queue = own.open("own", None, {int: in_thread(results.extend)})
        assert queue.produce_many(range(100)) == 100
        queue.flush(10)
    return len(results)

def forgets(number):
    # Drained as the process ends.
    queue = LoopThread().start().open("own", None, {int: mark(number)})
    assert queue.produce_many(range(100)) == 100

def mark(path):
    def write(batch):
        time.sleep(0.001 * len(batch))
        with open(path, "a") as file:
            file.write("x" * len(batch))
    return in_thread(write)

if __name__ == "__main__":
    queue = held.open("rows", None, {int: lambda batch: None})
    assert queue.produce(1)
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(pool.map(work, range(2)))
        pool.close()
        pool.join()
    process = context.Process(target=forgets, args=(sys.argv[2],))
    process.start()
    process.join()
    print(process.exitcode)
    queue.flush(10)
    assert held.stop() == {"rows": []}
    print(os.path.getsize(sys.argv[2]))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_each_method_work_with_threads_of_their_own(
    method: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PREFACE + PROCESSES)
    ended = Program(program, method, str(tmp_path / "marks")).end()
    assert ended.output.split("\n") == ["[100, 100]", "0", "100"], ended.log
    assert ended.status == 0


FORKING_HANDLER = """
def fork(batch):
    child = os.fork()
    if child:
        # A child that hangs hangs this one, too.
        assert os.waitpid(child, 0) == (child, 0)
        os.write(1, b"ended\\n")

with LoopThread() as held:
    queue = held.open("q", BatchQueueConfig(consumer=in_thread(fork), max_batch=1))
    queue.produce_many([1, 2])
assert queue.stats().handled == 2
"""


@each_python
def test_a_child_that_returns_from_a_handler_on_a_thread_ends(python: Path) -> None:
    ended = Program(FORKING_HANDLER, python=python).end()
    assert (ended.status, ended.output, ended.log) == (0, "ended\nended", "")


CLOSED = """
import os
from batchqueue_async import BatchQueueConfig, BatchQueueError, LoopThread

async def nothing():
    pass

with LoopThread() as loop_thread:
    queue = loop_thread.open("q", BatchQueueConfig(consumer=lambda _: None))
    queue.produce(1)
    queue.shutdown()
    child = os.fork()
    if child == 0:
        for call in (queue.flush, lambda: queue.call(nothing)):
            try:
                call()
            except BatchQueueError as error:
                os.write(1, str(error).partition(":")[0].encode() + b"\\n")
        queue.stats()
        os._exit(0)
    os.waitpid(child, 0)
"""


@each_python
def test_so_does_each_of_a_queue_that_its_parent_had_shut_down(python: Path) -> None:
    """It waited for the loop, whose thread is the parent's, for ever."""
    with Program(CLOSED, python=python) as program:
        lines = [program.wait_for_line() for _ in range(2)]
        assert lines == ["queue 'q' is its parent process's"] * 2
        assert program.end().status == 0
