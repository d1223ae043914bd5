"""`DrainTaskPolicy.adaptive`: partitions go to as many drain tasks as help."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskLimit,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
    RetryAfter,
    SharedDrainTasks,
    by_key,
)
from tests.support.oracle import check_accounts

KEYS = 32


class Server:
    """Does so many calls at once, each for 50 ms; the others wait in it."""

    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.got: dict[int, list[int]] = {key: [] for key in range(KEYS)}
        self.refuses = False

    async def consume(self, batch: list[int]) -> None:
        if self.refuses:
            raise RetryAfter(0.3)
        async with self.slots:
            await asyncio.sleep(0.05)
        for number in batch:
            self.got[number % KEYS].append(number)


def config_of(server: Server, drain_tasks: DrainTaskPolicy) -> BatchQueueConfig[int]:
    return BatchQueueConfig(
        consumer=server.consume,
        drain_tasks=drain_tasks,
        partitions=PartitionPolicy.fixed(KEYS),
        selector=by_key(lambda number: number % KEYS),
        max_batch=5,
        buffer_size=50,
        retry=Retry(attempts=1_000),
    )


def at_work(queue: BatchQueue[int]) -> set[int]:
    """The drain tasks that own a partition."""
    owners = {each.owner for each in queue.stats().partitions}
    return {owner for owner in owners if owner is not None}


def limit_of(queue: BatchQueue[int]) -> DrainTaskLimit:
    limit = queue.stats().drain_task_limit
    assert limit is not None
    return limit


async def feed(queue: BatchQueue[int], numbers: "count[int]", until: float) -> None:
    """Keep it full up to that time of the loop."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await queue.produce(next(numbers))


async def test_as_many_work_as_the_server_does_at_once() -> None:
    server, numbers = Server(5), count()
    config = config_of(server, DrainTaskPolicy.adaptive(1, 16))
    async with BatchQueue("q", config) as queue:
        assert at_work(queue) == {0}
        await feed(queue, numbers, 45.0)
        assert 4 <= len(at_work(queue)) <= 8
        assert limit_of(queue).faster >= 2
        before = sum(map(len, server.got.values()))
        await feed(queue, numbers, 60.0)
        rate = (sum(map(len, server.got.values())) - before) / 15
        check_accounts(queue.stats())
    # The most that five calls at once can do is 5 * 5 items in 50 ms.
    assert rate > 0.85 * 500


async def test_order_and_account_outlive_growth_and_shrinking() -> None:
    server, numbers = Server(8), count()
    config = config_of(server, DrainTaskPolicy.adaptive(1, 8))
    async with BatchQueue("q", config) as queue:
        for round_ in range(1, 4):
            await feed(queue, numbers, round_ * 40.0 - 20.0)
            # Idle for a while.
            await asyncio.sleep(20.0)
            check_accounts(queue.stats())
    assert limit_of(queue).idle > 0
    assert limit_of(queue).faster > 0
    produced = next(numbers)
    for key, got in server.got.items():
        assert got == [*range(key, produced, KEYS)]


async def test_idle_ones_give_their_partitions_back() -> None:
    server, numbers = Server(16), count()
    config = config_of(server, DrainTaskPolicy.adaptive(2, 8))
    async with BatchQueue("q", config) as queue:
        await feed(queue, numbers, 30.0)
        assert len(at_work(queue)) > 4
        await asyncio.sleep(30.0)
        assert at_work(queue) == {0, 1}
        assert limit_of(queue).reason == "idle"


async def test_half_of_them_go_on_where_the_server_throttles() -> None:
    server, numbers = Server(16), count()
    config = config_of(server, DrainTaskPolicy.adaptive(1, 8))
    async with BatchQueue("q", config) as queue:
        await feed(queue, numbers, 25.0)
        server.refuses = True
        await asyncio.sleep(2.5)
        assert limit_of(queue).throttled == 1
        # One that is only being tried when that begins is not what is halved.
        assert limit_of(queue).before > 4
        assert limit_of(queue).drain_tasks == limit_of(queue).before // 2
        server.refuses = False
    assert queue.stats().failed == 0


async def test_a_declared_rebalancing_says_when() -> None:
    server, numbers = Server(4), count()
    config = config_of(server, DrainTaskPolicy.adaptive(1, 4))
    changed = replace(config, rebalancing=Rebalancing(interval=5.0))
    async with BatchQueue("q", changed) as queue:
        await feed(queue, numbers, 3.0)
        # Cycles take up to 1.6 s here, and are waited for.
        assert at_work(queue) == {0}
        await feed(queue, numbers, 40.0)
        assert len(at_work(queue)) >= 3


async def test_a_fixed_number_has_no_limit() -> None:
    config = config_of(Server(1), DrainTaskPolicy.fixed(4))
    async with BatchQueue("q", config) as queue:
        assert at_work(queue) == {0, 1, 2, 3}
        assert queue.stats().drain_task_limit is None


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: DrainTaskPolicy.adaptive(0, 4), "least must be >= 1, got 0"),
        (lambda: DrainTaskPolicy.adaptive(4, 3), r"most must be >= least \(4\), got 3"),
        (
            lambda: SharedDrainTasks("io", DrainTaskPolicy.adaptive(1, 4)),
            "policy must be of a number that stays",
        ),
    ],
    ids=["least", "most", "shared"],
)
def test_bad_numbers_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_it_shows_itself() -> None:
    assert repr(DrainTaskPolicy.adaptive(1, 8)) == "DrainTaskPolicy.adaptive(1, 8)"
    assert DrainTaskPolicy.adaptive(1, 8).resolve() == 8
