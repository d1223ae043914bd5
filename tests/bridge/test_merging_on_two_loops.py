"""A `Merging` that queues of two loops share: nothing that it was given is lost."""

import pickle
import sys
import time
from collections import Counter
from operator import itemgetter
from threading import Event

import pytest

from batchqueue_async import BatchQueueConfig, LoopThread, Merging
from tests.bridge.background import wait_until
from tests.bridge.programs import Program

Count = tuple[str, int]

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


def summed(old: Count, new: Count) -> Count:
    return old[0], old[1] + new[1]


class Slow:
    """A `merge` that is in the middle for long enough that another loop comes in."""

    def __init__(self) -> None:
        self.is_inside = Event()

    def __call__(self, old: Count, new: Count) -> Count:
        self.is_inside.set()
        time.sleep(0.2)
        return summed(old, new)


def test_another_loop_hands_on_while_a_batch_is_merged() -> None:
    totals: Counter[str] = Counter()

    def then(counts: list[Count]) -> None:
        for key, count in counts:
            totals[key] += count

    merge = Slow()
    hits = Merging[Count](key=itemgetter(0), merge=merge, then=then, every=60.0)
    config = BatchQueueConfig[Count](consumer=hits)
    with LoopThread() as one, LoopThread() as other:
        first, second = one.open("first", config), other.open("second", config)
        first.produce(("/", 1))
        wait_until(lambda: first.stats().handled == 1)
        first.produce(("/", 1))
        assert merge.is_inside.wait(10)
        second.produce(("/about", 1))
        second.flush(timeout=10)
        first.flush(timeout=10)
    assert totals == {"/": 2, "/about": 1}


def test_it_can_be_sent_to_another_process() -> None:
    """As Spark does with whatever a function refers to."""
    hits = Merging[Count](key=itemgetter(0), merge=summed, then=print)
    assert pickle.loads(pickle.dumps(hits)).held == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_child_that_is_forked_while_a_batch_is_merged() -> None:
    ended = Program(FORK).end()
    assert (ended.status, ended.log) == (0, "")
