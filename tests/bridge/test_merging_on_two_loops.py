"""A `Merging` that queues of two loops share: nothing that it was given is lost."""

import time
from collections import Counter
from operator import itemgetter
from threading import Event

from batchqueue_async import BatchQueueConfig, LoopThread, Merging
from tests.bridge.background import wait_until

Count = tuple[str, int]


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
