"""A `LoopThread` at a program's end: drained whatever held it, and never a hang."""

import itertools
import signal
import sys
import time
from pathlib import Path

import pytest

from batchqueue_async import LoopThread, drain_on_signals
from batchqueue_async._bridge.loop_thread import run_of
from tests.bridge.programs import Program, each_python
from tests.support.thorough import IS_THOROUGH

# Three kinds of handlers, 100 items each; at the very end it prints what was handled.
USE = """
how, end = sys.argv[1:3]
handled = {"thread": 0, "async": 0, "plain": 0}
atexit.register(lambda: print(sorted(handled.items()), flush=True))

def block(batch):
    time.sleep(0.001 * len(batch))
    handled["thread"] += len(batch)

async def wait(batch):
    await asyncio.sleep(0.001 * len(batch))
    handled["async"] += len(batch)

def take(batch):
    handled["plain"] += len(batch)

def use(loop_thread):
    config = BatchQueueConfig(max_batch=10)
    handlers = {"thread": in_thread(block), "async": wait, "plain": take}
    queues = [loop_thread.open(k, config, {int: h}) for k, h in handlers.items()]
    for queue in queues:
        assert queue.produce_many(range(100)) == 100
    return queues[0]

def finish():
    if end == "exit":
        sys.exit(3)
    if end == "error":
        raise LookupError("on purpose")
"""

HOLDS = {
    "module": "held = LoopThread().start(); use(held); finish()",
    "entered": "held = LoopThread(); held.__enter__(); use(held); finish()",
    "stack": "held = contextlib.ExitStack()\n"
    "use(held.enter_context(LoopThread())); finish()",
    "queue": "held = use(LoopThread().start()); gc.collect(); finish()",
    "forgotten": "use(LoopThread().start()); gc.collect(); finish()",
    "with": "with LoopThread() as held:\n    use(held); finish()",
    "local": "def main():\n    held = LoopThread().start()\n"
    "    use(held); finish()\nmain()",
}
STATUS = {"end": 0, "exit": 3, "error": 1}
# Without time for all: each hold once, and each end more than once.
WAYS = list(
    itertools.product(HOLDS, STATUS)
    if IS_THOROUGH
    else zip(HOLDS, itertools.cycle(STATUS), strict=False)
)
ALL = "[('async', 100), ('plain', 100), ('thread', 100)]"


@each_python
@pytest.mark.timeout(120)
def test_everything_is_handled_however_it_is_held_and_ends(python: Path) -> None:
    faults = []
    # A few at a time.
    for first in range(0, len(WAYS), 4):
        some = WAYS[first : first + 4]
        programs = [
            Program(USE + HOLDS[hold], hold, end, python=python) for hold, end in some
        ]
        for (hold, end), program in zip(some, programs, strict=True):
            ended = program.end()
            if (ended.output, ended.status) != (ALL, STATUS[end]):
                faults.append((hold, end, ended))
    assert faults == []


AT_EXIT = """
from batchqueue_async.logging import BatchingHandler
handled = []
# What was asked for first comes last.
atexit.register(lambda: sys.stdout.write(f"{sorted(handled)}\\n"))

def rows(loop_thread):
    return loop_thread.open("rows", BatchQueueConfig(consumer=handled.extend))

def note(records):
    handled.extend(each.message for each in records)

def by_process_queue():
    process_queue(rows).produce("row")
    close_process_queues()

def by_log():
    handler = BatchingHandler(note)
    logger = logging.getLogger("at exit")
    logger.propagate = False
    logger.addHandler(handler)
    logger.warning("line")
    handler.close()

def by_loop_thread():
    with LoopThread() as loop_thread:
        rows(loop_thread).produce("item")

def say(batch):
    # One write: the main thread prints at that time, too.
    sys.stdout.write(f"{batch}\\n")

def forgotten():
    config = BatchQueueConfig(consumer=in_thread(say))
    assert LoopThread().start().open("say", config).produce("left") is True

def wait():
    time.sleep(0.2)

if sys.argv[1] == "again":
    by_loop_thread()
for each in (forgotten, wait, by_process_queue, by_log, by_loop_thread):
    atexit.register(each)
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it starts no thread then")
@pytest.mark.parametrize(
    "how, output",
    [
        ("first", "['item', 'line', 'row']"),
        ("again", "['item', 'item', 'line', 'row']"),
    ],
)
def test_what_atexit_calls_may_be_the_first_to_use_a_queue(
    how: str, output: str
) -> None:
    ended = Program(AT_EXIT, how).end()
    assert (ended.status, ended.log) == (0, "")
    assert sorted(ended.output.split("\n")) == [output, "['left']"]


IN_A_THREAD = """
ready, handled = threading.Event(), []
atexit.register(lambda: print(len(handled), flush=True))

def main():
    handlers = [handled.extend, in_thread(handled.extend)]
    with LoopThread() as held:
        queues = [held.open(str(n), None, {int: h}) for n, h in enumerate(handlers)]
        ready.set()
        time.sleep(0.5)
        for queue in queues:
            assert queue.produce_many(range(100)) == 100

threading.Thread(target=main).start()
assert ready.wait(10)
"""


@each_python
def test_a_thread_that_outlives_the_main_thread_goes_on_with_its_own(
    python: Path,
) -> None:
    """The interpreter waits for it, so the end of its `with` block is still to come."""
    ended = Program(IN_A_THREAD, python=python).end()
    assert (ended.output, ended.status) == ("200", 0)


LEAVES = """
entered, told = threading.Event(), []
atexit.register(lambda: print(len(told), flush=True))

def never(batch):
    entered.set()
    time.sleep(3600)

async def never_here(batch):
    entered.set()
    await asyncio.sleep(3600)

handler = {"thread": in_thread(never), "loop": never, "async": never_here}[sys.argv[1]]
config = BatchQueueConfig(max_batch=10, on_error=lambda batch, _: told.extend(batch))
held = LoopThread(shutdown_timeout=0.5, patience=0.3).start()
queue = held.open("rows", config, {int: handler})
assert queue.produce_many(range(100)) == 100
assert entered.wait(10)
"""


@each_python
@pytest.mark.parametrize("kind", ["thread", "loop", "async"])
def test_a_handler_that_never_returns_holds_it_up_to_the_deadline_only(
    python: Path, kind: str
) -> None:
    """And what is left is logged; `on_error` gets it, where the loop still runs."""
    ended = Program(LEAVES, kind, python=python).end(within=20.0)
    assert ended.status == 0
    assert ended.output == ("0" if kind == "loop" else "100")
    assert "ERROR 100 items of 'rows'" in ended.log


# Registered last, so called right before the loop's thread ends.
AT_THE_EXIT = """
threading._register_atexit(print, "ready", flush=True)
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_at_the_exit_ends_the_wait(signals: int) -> None:

    text = LEAVES.replace("shutdown_timeout=0.5", "shutdown_timeout=60")
    with Program(text + AT_THE_EXIT, "async") as program:
        assert program.wait_for_line() == "ready"
        for _ in range(signals):
            time.sleep(0.3)
            program.send(signal.SIGINT)
        ended = program.end()
    assert "100 items of 'rows'" in ended.log


NEEDS_A_THREAD = """
told, handled = [], []
atexit.register(lambda: print(len(handled) + len(told), bool(told), flush=True))

async def consume(batch):
    await asyncio.to_thread(handled.extend, batch)

config = BatchQueueConfig(linger=5, on_error=lambda batch, _: told.extend(batch))
held = LoopThread().start()
queue = held.open("rows", config, {int: consume})
assert queue.produce_many(range(100)) == 100
"""


@each_python
def test_what_needs_a_new_thread_at_the_exit_is_told(python: Path) -> None:
    """From Python 3.12 on there is none to be had: its batch fails."""
    ended = Program(NEEDS_A_THREAD, python=python).end()
    assert ended.output.startswith("100 "), ended
    assert ended.status == 0


ENDING = """
handled, failed = [], []
atexit.register(lambda: print(len(handled), len(failed), flush=True))

def end():
    {"exit": sys.exit, "interrupt": interrupt}[sys.argv[1]](7)

def interrupt(_):
    raise KeyboardInterrupt

def block(batch):
    if 45 in batch:
        end()
    handled.extend(batch)

async def group(batch):
    async def fail():
        end()
    if 45 in batch:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
    handled.extend(batch)

handler = {"loop": block, "thread": in_thread(block), "task": group}[sys.argv[2]]
config = BatchQueueConfig(max_batch=10, on_error=lambda batch, _: failed.extend(batch))

def use(loop_thread):
    queue = loop_thread.open("rows", config, {int: handler})
    assert queue.produce_many(range(100)) == 100
"""
WITH = """
try:
    with LoopThread() as held:
        use(held)
except (SystemExit, KeyboardInterrupt) as error:
    print(repr(error))
"""
STOP = """
held = LoopThread().start()
use(held)
try:
    held.stop()
except (SystemExit, KeyboardInterrupt) as error:
    print(repr(error))
assert held.stop() == {}
"""
EXIT = "held = LoopThread().start(); use(held)"


@pytest.mark.parametrize("kind", ["loop", "thread", "task"])
@pytest.mark.parametrize("what", ["exit", "interrupt"])
def test_what_a_handler_ends_the_program_with_fails_its_batch_and_is_raised(
    kind: str, what: str
) -> None:
    error = {"exit": "SystemExit(7)", "interrupt": "KeyboardInterrupt()"}[what]
    for text in (WITH, STOP):
        ended = Program(ENDING + text, what, kind).end()
        assert ended.output == f"{error}\n90 10"
        assert ended.status == 0
    ended = Program(ENDING + EXIT, what, kind).end()
    assert ended.output == "90 10"
    assert f"ERROR LoopThread 'batchqueue': {error}" in ended.log


SIGNAL = """
import signal
handled = []
atexit.register(lambda: print(len(handled), flush=True))

async def slow(batch):
    await asyncio.sleep(float(sys.argv[2]))
    handled.extend(batch)

def wait(queue):
    if sys.argv[1] == "produce":
        while queue.produce(1):
            pass
    elif sys.argv[1] == "flush":
        queue.flush()
    elif sys.argv[1] == "join":
        thread = threading.Thread(target=time.sleep, args=(3600,), daemon=True)
        thread.start()
        thread.join()
    # Since Python 3.14 a long sleep may begin with a signal at hand, and go on.
    while True:
        time.sleep(0.01)

def use(loop_thread):
    drain_on_signals(loop_thread)
    config = BatchQueueConfig(consumer=slow, buffer_size=20)
    queue = loop_thread.open("rows", config)
    assert queue.produce_many(range(15)) == 15
    try:
        print("ready", flush=True)
        wait(queue)
    finally:
        print("finally", flush=True)
"""
IN_WITH = "with LoopThread() as held:\n    use(held)"
HELD = "held = LoopThread().start(); use(held)"


@pytest.mark.parametrize("hold", [IN_WITH, HELD], ids=["with", "held"])
@pytest.mark.parametrize("wait", ["sleep", "produce", "flush", "join"])
def test_a_signal_drains_and_ends_the_program(hold: str, wait: str) -> None:

    with Program(SIGNAL + hold, wait, "0.05") as program:
        assert program.wait_for_line() == "ready"
        time.sleep(0.3)
        program.send(signal.SIGTERM)
        ended = program.end()
    assert ended.status == 143
    first, count = ended.output.split()
    assert first == "finally"
    assert int(count) >= 15
    assert "Traceback" not in ended.log
    assert "left" not in ended.log


@pytest.mark.parametrize("hold", [IN_WITH, HELD], ids=["with", "held"])
def test_a_second_signal_ends_the_wait(hold: str) -> None:

    with Program(SIGNAL + hold, "sleep", "60") as program:
        assert program.wait_for_line() == "ready"
        program.send(signal.SIGTERM)
        # The first has been noticed: two at once may count as one.
        assert program.wait_for_line() == "finally"
        time.sleep(0.5)
        program.send(signal.SIGTERM)
        ended = program.end()
    assert (ended.status, ended.output) == (143, "0")
    assert "15 items of 'rows' were left" in ended.log


@pytest.mark.parametrize("hold", [IN_WITH, HELD], ids=["with", "held"])
def test_one_signal_that_comes_twice_is_one(hold: str) -> None:
    """As `timeout` sends it: to the program, and to its whole group."""
    with Program(SIGNAL + hold, "sleep", "1") as program:
        assert program.wait_for_line() == "ready"
        for _ in range(2):
            program.send(signal.SIGTERM)
            time.sleep(0.005)
        ended = program.end()
    assert (ended.status, ended.output.split()) == (143, ["finally", "15"])
    assert "left" not in ended.log


def test_its_deadline_is_the_declared_one() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with LoopThread(shutdown_timeout=120) as loop_thread:
        run = run_of(loop_thread)
        assert run is not None
        drain_on_signals(loop_thread, (signal.SIGUSR1,))
        try:
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        left = run.draining.seconds_left()
    assert left is not None
    assert 100 < left <= 120
