"""A1 across threads: what is accepted is handled, though nothing is flushed or closed.

A flush and a shutdown wake all drain tasks, and so do handlers with `on_idle`: here is
neither, so that a wake-up that is lost shows.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    PartitionSelector,
    SyncBatchQueue,
    by_key,
    fair_by,
)
from tests.bridge.background import PATIENCE, wait_until
from tests.support.oracle import check_settled

ITEMS = 60
SELECTORS: tuple[PartitionSelector[int], ...] = (
    by_key(lambda item: item),
    fair_by(lambda item: item % 5),
    lambda item, partitions: item % partitions,
)


def settings_of(chance: random.Random, consume: Callable[[list[int]], None]) -> Any:  # noqa: ANN401
    """Return little room, bounded in one way or another."""
    selector = chance.choice(SELECTORS)
    settings: dict[str, Any] = {
        "consumer": consume,
        "selector": selector,
        "partitions": PartitionPolicy.fixed(3),
        "drain_tasks": DrainTaskPolicy.fixed(2),
        "buffer_size": chance.choice([1, 2, 10]),
        "max_batch": chance.choice([None, 1, 3]),
        "linger": chance.choice([0.0, 0.0, 0.001]),
    }
    if selector is not SELECTORS[1]:
        settings |= {"size_of": lambda item: item % 7 + 1, "buffer_bytes": 10}
    return BatchQueueConfig[int](**settings)


def produce(queue: SyncBatchQueue[int], seed: str) -> None:
    """Put in all items, one by one or a few at a time, and wait for room."""
    chance, items = random.Random(seed), list(range(ITEMS))
    while items:
        count = chance.choice([1, 1, 2, 12])
        assert queue.produce_many(items[:count], PATIENCE) == len(items[:count])
        del items[:count]


@pytest.mark.parametrize("seed", range(24))
def test_what_threads_bring_is_handled_without_a_flush(
    seed: int, loop_thread: LoopThread
) -> None:
    handled: list[int] = []
    config = settings_of(random.Random(seed), handled.extend)
    queue = loop_thread.open("q", config)
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(produce, queue, f"{seed} {n}") for n in range(3)]
    for job in jobs:
        job.result()
    wait_until(lambda: len(handled) == 3 * ITEMS)
    assert sorted(handled) == sorted([*range(ITEMS)] * 3)
    queue.flush(PATIENCE)
    check_settled(queue.queue)
