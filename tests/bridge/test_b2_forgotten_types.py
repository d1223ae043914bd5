"""B2 while types are forgotten, and threads look partitions up without the guard."""

import gc
import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
)
from batchqueue_async._engine.partitions.weak_type_dict import LEAST
from tests.bridge.background import answers, in_background
from tests.support.oracle import check_settled


class Kept:
    """An item of a type that its producer knows."""

    def __init__(self, number: int) -> None:
        self.number = number


class Handler:
    """For all types; notes in which order each one's items came."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, list[int]] = defaultdict(list)
        self.made = 0

    def consume(self, batch: list[Any]) -> None:
        for item in batch:
            if isinstance(item, Kept):
                self.seen[type(item).__name__].append(item.number)
            else:
                self.made += 1


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("has_handler", [True, False])
def test_a_type_that_a_thread_knows_keeps_its_partition_and_its_order(
    loop_thread: LoopThread, *, has_handler: bool
) -> None:
    """Others make types as they go, and drive all that are not pinned out."""
    handler = Handler()
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(8), drain_tasks=DrainTaskPolicy.fixed(3)
    )
    handlers = {object: handler} if has_handler else {}
    queue: SyncBatchQueue[Any] = loop_thread.open("q", config, handlers)
    placement = queue._queue._parts.placement
    homes: defaultdict[type, set[int]] = defaultdict(set)

    def know(thread: int) -> None:
        types = [type(f"Kept{thread}_{each}", (Kept,), {}) for each in range(20)]
        for number, item_type in itertools.product(range(60), types):
            assert queue.produce(item_type(number))
            homes[item_type].add(placement.partition_of(item_type(0)).index)

    def make() -> None:
        for number in range(4 * LEAST):
            made = [type(f"Made{number}", (), {})() for _ in range(3)]
            assert queue.produce(made.pop())
            assert queue.produce_many(made) == 2
            if number % 100 == 0:
                gc.collect()

    answers([*(in_background(know, each) for each in range(2)), in_background(make)])
    queue.shutdown(10)
    assert check_settled(queue).accepted == 2 * 20 * 60 + 3 * 4 * LEAST
    assert placement.placed.evictions > 1  # type: ignore[union-attr]
    assert set(map(len, homes.values())) == {1}
    if has_handler:
        assert handler.made == 3 * 4 * LEAST
        assert handler.seen == {each: list(range(60)) for each in handler.seen}
        assert len(handler.seen) == 40


def test_types_that_threads_made_are_forgotten(loop_thread: LoopThread) -> None:
    queue: SyncBatchQueue[Any] = loop_thread.open(
        "q", BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(4)), {object: print}
    )

    def made() -> Iterator[Any]:
        for number in range(2_000):
            yield type(f"Made{number}", (Brief,), {})()

    class Brief:
        def __repr__(self) -> str:
            return ""

    for item in itertools.islice(made(), 1_000):
        assert queue.produce(item)
    assert queue.produce_many(made()) == 2_000
    item = None
    queue.flush(10)
    queue.shutdown(10)
    gc.collect()
    assert len(Brief.__subclasses__()) < 3 * LEAST
