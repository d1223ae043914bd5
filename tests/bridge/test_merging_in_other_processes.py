"""A `Merging` in a forked child, or sent to another process: it begins with nothing."""

import asyncio
import pickle
import sys
from operator import itemgetter

import pytest

from batchqueue_async import Merging
from tests.bridge.programs import Program

Count = tuple[str, int]

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

FORK = """
is_inside, may_leave = threading.Event(), threading.Event()

def merge(old, new):
    is_inside.set()
    may_leave.wait()
    return old + new

async def consume(numbers):
    await hits.consume(numbers)

hits = Merging(key=int.bit_length, merge=merge, then=print)
# A loop of the program's own does not rest during a fork.
thread = threading.Thread(target=asyncio.run, args=(consume([1, 1]),))
thread.start()
is_inside.wait()
pid = os.fork()
if not pid:
    signal.alarm(10)  # It would wait for ever.
    asyncio.run(consume([2]))
    os._exit(0)
may_leave.set()
thread.join()
assert os.waitpid(pid, 0)[1] == 0
"""

HELD = """
def added(old, new):
    return old[0], old[1] + new[1]

def write(counts):
    print(os.getpid() == parent, *counts, flush=True)

# Of the module, and so of the parent: `open_rows` should make it.
hits = Merging(key=lambda count: count[0], merge=added, then=write, every=3600)

def open_rows(loop_thread):
    return loop_thread.open("rows", BatchQueueConfig(consumer=hits))

def produce(count):
    rows = process_queue(open_rows)
    assert rows.produce(count)
    while not rows.stats().handled:
        time.sleep(0.01)

parent = os.getpid()
produce(("parent", 1))
pid = os.fork()
if not pid:
    assert hits.held == 0
    produce(("child", 1))
    close_process_queues()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
close_process_queues()
"""


def summed(old: Count, new: Count) -> Count:
    return old[0], old[1] + new[1]


def test_a_copy_holds_nothing_and_goes_on_by_itself() -> None:
    """Spark makes one of whatever a function refers to."""
    hits = Merging[Count](key=itemgetter(0), merge=summed, then=print)
    asyncio.run(hits.consume([("/", 1)]))
    copy = pickle.loads(pickle.dumps(hits))
    assert (copy.held, hits.held) == (0, 1)
    asyncio.run(copy.consume([("/about", 1)]))
    assert (copy.held, hits.held) == (1, 1)


@needs_fork
def test_a_child_that_is_forked_while_a_batch_is_merged() -> None:
    ended = Program(FORK).end()
    assert (ended.status, ended.log) == (0, "")


@needs_fork
def test_what_the_parent_has_merged_the_parent_hands_on() -> None:
    ended = Program(HELD).end()
    assert (ended.status, ended.log) == (0, "")
    assert ended.output == "False ('child', 1)\nTrue ('parent', 1)"
