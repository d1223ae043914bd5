"""What a process opens while it ends is drained, too, also if it runs no `atexit`."""

from pathlib import Path

import pytest

from tests.bridge.programs import PREFACE, Program, each_python

ENDS = """
import multiprocessing

async def write(batch):
    await asyncio.sleep(0.01)
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"x" * len(batch))
    os.close(file)

def open_rows(loop_thread):
    config = BatchQueueConfig(consumer=write, linger=0.2, max_batch=20)
    return loop_thread.open("rows", config)

def put():
    assert process_queue(open_rows).produce_many(range(100)) == 100

def open_feeder(loop_thread):
    def feed(batch):
        assert process_queue(open_rows).produce_many(batch) == len(batch)

    config = BatchQueueConfig(consumer=in_thread(feed), linger=60)
    return loop_thread.open("feeder", config)

def open_chain(loop_thread):
    # The end of the chain is opened first, though its thread is started last.
    process_queue(open_rows)
    return open_feeder(loop_thread)

def feed_chain():
    assert process_queue(open_chain).produce_many(range(100)) == 100

def feed():
    # Only the feeder's end opens the other one.
    assert process_queue(open_feeder).produce_many(range(100)) == 100

def leave_to_a_thread():
    begun = threading.Event()

    def put_late():
        begun.set()
        # Not before the main thread waits for this one.
        while not threading._SHUTTING_DOWN:
            time.sleep(0.001)
        put()

    threading.Thread(target=put_late).start()
    begun.wait()

def feed_to_the_end():
    feed()
    close_process_queues()
    os._exit(0)

def fork_from_a_thread():
    def fork():
        pid = os.fork()
        if not pid:
            feed_to_the_end()
        assert os.waitpid(pid, 0)[1] == 0

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()

# As most programs have it before their threads end, and uvloop wants it.
import concurrent.futures.thread

def spawn(target):
    process = multiprocessing.get_context("fork").Process(target=target)
    process.start()
    process.join()
    assert process.exitcode == 0
"""


@each_python
@pytest.mark.parametrize(
    "end",
    [
        "spawn(feed)",
        "spawn(leave_to_a_thread)",
        "spawn(feed_to_the_end)",
        "spawn(fork_from_a_thread)",
        "fork_from_a_thread()",
        # Python 3.12 starts no thread at this end.
        "close_process_queues(); feed_chain()",
        "close_process_queues(); spawn(feed_chain)",
    ],
)
def test_what_is_opened_late_is_drained(end: str, python: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    # The parent's own queue is none of the child's business.
    ended = Program(f"{ENDS}put()\n{end}", str(rows), python=python).end()
    assert (ended.status, ended.log) == (0, "")
    assert rows.stat().st_size == 200


GO_ON = """
accepted, handled = [0, 0, 0, 0], []
atexit.register(lambda: print(sum(accepted) == len(handled) > 0, flush=True))

async def take(batch):
    await asyncio.sleep(0.1)
    handled.extend(batch)

def open_rows(loop_thread):
    return loop_thread.open("rows", BatchQueueConfig(consumer=take))

def open_others(loop_thread):
    return loop_thread.open("others", BatchQueueConfig(consumer=take))

def go_on(index):
    while True:
        for each in (open_rows, open_others):
            accepted[index] += process_queue(each).produce("row")
        time.sleep(0.001)

for each in (open_rows, open_others):
    process_queue(each)
# As the requests of a development server that loads its program again.
for index in range(4):
    threading.Thread(target=go_on, args=(index,), daemon=True).start()
while not handled:
    time.sleep(0.001)
"""


@each_python
def test_the_exit_ends_though_daemon_threads_go_on_producing(python: Path) -> None:
    ended = Program(GO_ON, python=python).end(10)
    assert (ended.output, ended.status, ended.log) == ("True", 0, "")


JUST_STARTED = """
from batchqueue_async._bridge.loop_run import LoopRun

handled, is_started, is_past = [], threading.Event(), threading.Event()
atexit.register(lambda: print(len(handled), flush=True))
# What is registered first is called last: after `LoopThread`s were drained.
threading._register_atexit(is_past.set)

start = LoopRun.start

def start_until_the_exit(self):
    start(self)
    is_started.set()
    assert is_past.wait(10)

LoopRun.start = start_until_the_exit

def open_rows(loop_thread):
    return loop_thread.open("rows", BatchQueueConfig(consumer=handled.extend))

def enter():
    with LoopThread() as loop_thread:
        assert open_rows(loop_thread).produce_many(range(100)) == 100

def use():
    queue = process_queue(open_rows)
    assert queue.produce_many(range(100)) == 100

threading.Thread(target={"enter": enter, "use": use}[sys.argv[1]]).start()
assert is_started.wait(10)
"""


@each_python
@pytest.mark.parametrize("how", ["enter", "use"])
def test_a_thread_that_starts_one_as_the_main_thread_ends_goes_on_with_it(
    python: Path, how: str
) -> None:
    ended = Program(JUST_STARTED, how, python=python).end()
    assert (ended.output, ended.status, ended.log) == ("100", 0, "")


QUEUED = """
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

sent = None

def open_rows(loop_thread):
    config = BatchQueueConfig(consumer=in_thread(sent.put), max_batch=10, linger=3600)
    return loop_thread.open("rows", config)

def worker(queue):
    global sent
    sent = queue
    rows = process_queue(open_rows)
    assert rows.produce_many(range(1000)) == 1000
    rows.flush()  # From its first `put` on it is closed at the end.
    assert rows.produce_many(range(5)) == 5
    if sys.argv[2] == "beside a pool":
        global pool
        pool = ThreadPoolExecutor(1)  # Its threads are waited for last.
        pool.submit(bool)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=worker, args=(queue,))
    process.start()
    process.join()
    missing = 1005
    while not queue.empty():  # Exact, now that nobody puts anything in.
        missing -= len(queue.get())
    print("missing:", missing)
"""


@each_python
@pytest.mark.parametrize("beside", ["alone", "beside a pool"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_queue_of_multiprocessing_is_open_while_its_process_drains(
    method: str, beside: str, python: Path, tmp_path: Path
) -> None:
    """It was closed before, took what handlers put into it, and sent nothing of it."""
    program = tmp_path / "program.py"
    program.write_text(PREFACE + QUEUED)
    ended = Program(program, method, beside, python=python).end()
    assert (ended.status, ended.log, ended.output) == (0, "", "missing: 0")


# A handler of a thread, since the loop would be held up by what waits in a pipe.
IMPORTED = """
import multiprocessing

sent = None

def send(batch):
    sent.put(batch)

def open_rows(loop_thread):
    config = BatchQueueConfig(consumer=in_thread(send), max_batch=10, linger=3600)
    return loop_thread.open("rows", config)

if __name__ == "__mp_main__":
    rows = open_rows(LoopThread().start())

def worker(queue):
    global sent
    sent = queue
    used = rows if sys.argv[2] == "imported" else process_queue(open_rows)
    assert used.produce_many(range(1000)) == 1000
    used.flush()
    assert used.produce_many(range(5)) == 5

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=worker, args=(queue,))
    process.start()
    process.join()
    missing = 1005
    while not queue.empty():
        missing -= len(queue.get())
    print("missing:", missing)
"""


@each_python
@pytest.mark.parametrize("which", ["imported", "used later"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_queue_of_multiprocessing_is_open_for_what_an_import_has_opened(
    method: str, which: str, python: Path, tmp_path: Path
) -> None:
    """A child that imports its program is not yet known as one of multiprocessing's."""
    program = tmp_path / "program.py"
    program.write_text(PREFACE + IMPORTED)
    ended = Program(program, method, which, python=python).end()
    assert (ended.status, ended.log, ended.output) == (0, "", "missing: 0")


AS_A_CLIENT = f"""
import atexit

# Before the import: it is called when all that the library registers was called.
atexit.register(lambda: print(*(capture(each) for each in ("late", "later"))))
{PREFACE}

class Client:
    def open(self, loop_thread):
        config = BatchQueueConfig(consumer=in_thread(print))
        return loop_thread.open("events", config)

client = Client()

def capture(event):
    try:
        return bool(process_queue(client.open).offer(event))
    except BatchQueueError as error:
        return str(error)

if sys.argv[1] == "used":
    capture("early")
"""


@each_python
def test_what_atexit_calls_last_gets_a_used_queue_closed(
    python: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(AS_A_CLIENT)
    ended = Program(program, "used", python=python).end()
    assert (ended.status, ended.log) == (0, "")
    assert ended.output == "['early']\nFalse False"


@each_python
def test_what_atexit_calls_last_is_told_that_nothing_is_opened(
    python: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(AS_A_CLIENT)
    ended = Program(program, "unused", python=python).end()
    assert (ended.status, ended.log) == (0, "")
    # In Python 3.12 itself no thread starts by then.
    opens_none = "the program ends: LoopThread 'batchqueue' opens no queue"
    assert max(map(ended.output.count, (opens_none, "cannot start"))) == 2
