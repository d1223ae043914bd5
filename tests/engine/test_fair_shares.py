"""`fair_by`: a tenant that floods delays the others by one call of the sink at most."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    PartitionSelector,
    fair_by,
)
from tests.support.oracle import check_settled

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])

CALL = 0.005
"""Seconds that the sink takes for a call, whatever the batch."""
EVERY = 0.0193
"""Seconds between two items of a quiet tenant: no multiple of a call."""


class Item(NamedTuple):
    tenant: str
    made: float


def tenant_of(item: Item) -> str:
    return item.tenant


class Sink:
    """Notes how old the items are when they are stored."""

    def __init__(self, per_item: float = 0.0) -> None:
        self.ages: dict[str, list[float]] = {}
        self.batches: list[list[Item]] = []
        self._per_item = per_item

    async def consume(self, batch: list[Item]) -> None:
        await asyncio.sleep(CALL + self._per_item * len(batch))
        now = asyncio.get_running_loop().time()
        for item in batch:
            self.ages.setdefault(item.tenant, []).append(now - item.made)
        self.batches.append(batch)

    def p99(self, tenant: str) -> float:
        ages = sorted(self.ages[tenant])
        return ages[int(0.99 * len(ages))]


QUIET = [f"quiet {n}" for n in range(3)]


async def run(
    sink: Sink,
    tenants: dict[str, float],
    seconds: float,
    **settings: Any,  # noqa: ANN401 - any setting
) -> None:
    """Have each tenant send one item every so many seconds."""
    settings.setdefault("selector", fair_by(lambda item: item.tenant))
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    config = BatchQueueConfig[Item](consumer=sink, **settings)
    async with BatchQueue("tenants", config) as queue:

        async def send(tenant: str, every: float) -> None:
            # In bursts, as a flood comes, and as virtual time is cheap.
            burst = max(1, round(CALL / every))
            while loop.time() < end:
                items = [Item(tenant, loop.time()) for _ in range(burst)]
                await queue.produce_many(items)
                await asyncio.sleep(burst * every)

        async with asyncio.TaskGroup() as group:
            for tenant, every in tenants.items():
                group.create_task(send(tenant, every))
    check_settled(queue)


async def quiet_p99(
    flood: dict[str, float],
    **settings: Any,  # noqa: ANN401 - any setting
) -> float:
    sink = Sink(settings.pop("per_item", 0.0))
    quiet = {tenant: EVERY + n / 1000 for n, tenant in enumerate(QUIET)}
    await run(sink, quiet | flood, seconds=1.0, **settings)
    return max(sink.p99(tenant) for tenant in QUIET)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_batch": 50},
        {"buffer_size": 100},
        {"partitions": PartitionPolicy.fixed(4)},
        {"partitions": PartitionPolicy.fixed(4), "max_batch": 50},
        {
            "partitions": PartitionPolicy.fixed(4),
            "drain_tasks": DrainTaskPolicy.fixed(2),
        },
    ],
    ids=str,
)
@pytest.mark.parametrize("floods", [pytest.param(1, marks=pytest.mark.slow), 5])
async def test_a_flood_a_thousand_times_their_load_at_most_doubles_the_others_p99(
    settings: dict[str, Any], floods: int
) -> None:
    alone = await quiet_p99({}, **settings)
    flood = {f"flood {n}": EVERY / 1000 / floods for n in range(floods)}
    beside = await quiet_p99(flood, **settings)
    assert beside <= 2 * alone
    assert beside <= 2 * CALL + 0.001


async def test_it_takes_fair_by_to_do_so() -> None:
    """The scenario is one in which a plain queue makes them wait."""
    plain: PartitionSelector[Item] = lambda item, _: 0  # noqa: E731
    flood = {"flood": EVERY / 1000}
    assert await quiet_p99(flood, selector=plain, max_batch=50) > 20 * CALL


async def test_a_batch_has_something_of_every_tenant_that_waits() -> None:
    sink = Sink()
    config = BatchQueueConfig[Item](
        consumer=sink, selector=fair_by(lambda item: item.tenant), max_batch=20
    )
    async with BatchQueue("tenants", config) as queue:
        items = [Item(tenant, 0.0) for tenant in "abcdefghij" for _ in range(30)]
        await queue.produce_many(items)
    assert [len(batch) for batch in sink.batches] == [20] * 15
    for batch in sink.batches:
        assert set(Counter(item.tenant for item in batch).values()) == {2}


async def test_of_several_partitions_each_has_its_part_of_a_batch() -> None:
    """Else the second one's would be in a second call."""
    batches: list[list[tuple[int, int]]] = []
    selector: PartitionSelector[tuple[int, int]] = fair_by(lambda item: item[0])
    config = BatchQueueConfig[tuple[int, int]](
        consumer=batches.append,
        selector=selector,
        max_batch=10,
        partitions=PartitionPolicy.fixed(2),
    )
    async with BatchQueue("q", config) as queue:
        # A small int is its own hash: one key in each partition, and one more in one.
        await queue.produce_many([(key, n) for key in (0, 1) for n in range(50)])
        await queue.produce((3, 0))
    shares = [Counter(key for key, _ in batch) for batch in batches]
    assert [sum(each.values()) for each in shares] == [10] * 10 + [1]
    assert shares[0] == {0: 5, 1: 4, 3: 1}


async def test_weights_are_kept() -> None:
    weights = {"free": 1, "plus": 2.5, "pro": 10}
    sink = Sink()
    selector = fair_by(tenant_of, weight=weights.__getitem__, quantum=20)
    config = BatchQueueConfig[Item](consumer=sink, selector=selector)
    async with BatchQueue("tenants", config) as queue:
        for tenant in weights:
            await queue.produce_many([Item(tenant, 0.0)] * 1000)
    first = Counter(item.tenant for batch in sink.batches[:5] for item in batch)
    assert first == {"free": 100, "plus": 250, "pro": 1000}


async def test_a_weight_is_asked_for_again_after_a_key_had_nothing() -> None:
    weights: dict[Hashable, float] = {"a": 1.0, "b": 1.0}
    batches: list[list[str]] = []
    selector = fair_by(str, weight=weights.__getitem__, quantum=2)
    config = BatchQueueConfig[str](consumer=batches.append, selector=selector)
    async with BatchQueue("q", config) as queue:
        for weight in (1.0, 3.0):
            weights["a"] = weight
            await queue.produce_many(["a"] * 6 + ["b"] * 2)
            await queue.flush()
    assert [len(batch) for batch in batches] == [4, 2, 2, 8]


async def test_a_flood_that_stops_owes_nobody_anything() -> None:
    """Nor is there a share that waits for one who has nothing to send."""
    sink = Sink()
    await run(sink, {"flood": CALL / 500}, seconds=0.2)
    assert {len(batch) for batch in sink.batches[5:-5]} == {100}


async def test_handlers_of_types_get_their_tenants_fairly() -> None:
    batches: list[list[Any]] = []
    key: Callable[[Any], Hashable] = lambda item: item[0]  # noqa: E731
    config = BatchQueueConfig[Any](selector=fair_by(key), max_batch=10)
    async with BatchQueue("types", config) as queue:
        queue.add_handler(tuple, batches.append)
        queue.add_handler(str, batches.append)
        await queue.produce_many([("a", n) for n in range(100)] + ["b", "c"])
    assert [len(batch) for batch in batches[:2]] == [8, 2]
    assert sum(map(len, batches)) == 102
