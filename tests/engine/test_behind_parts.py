"""B1, D6: behind a part that waits for its retry only its own partitions wait."""

import asyncio
import random
from collections import defaultdict
from typing import NamedTuple

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartialFailure,
    PartitionPolicy,
    Retry,
    by_key,
)
from tests.support.oracle import check_accounts, check_settled

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])


class Row(NamedTuple):
    tenant: int
    number: int


class Store:
    """Writes a tenant's rows unless he is away, and names those of who is."""

    def __init__(self, *away: int) -> None:
        self.away = {*away}
        self.rows: dict[int, list[int]] = defaultdict(list)
        self.calls = 0

    async def consume(self, batch: list[Row]) -> None:
        self.calls += 1
        await asyncio.sleep(0.01)
        failed = []
        for place, row in enumerate(batch):
            if row.tenant in self.away:
                failed.append(place)
            else:
                self.rows[row.tenant].append(row.number)
        if failed:
            raise PartialFailure(failed)


def config(store: object, drain_tasks: int = 1) -> BatchQueueConfig[Row]:
    return BatchQueueConfig(
        consumer=store,  # type: ignore[arg-type]  # what has `consume`
        max_batch=5,
        retry=Retry(attempts=10_000, wait_max=1.0),
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.fixed(16),
        selector=by_key(lambda row: row.tenant),
    )


def burst(tenants: int, of_each: int) -> list[Row]:
    return [Row(tenant, n) for n in range(of_each) for tenant in range(tenants)]


@pytest.mark.parametrize("of_each", [1, 3, 4, 5, 12])
@pytest.mark.parametrize("away", range(6))
async def test_nobody_waits_for_another_partitions_part(
    away: int, of_each: int
) -> None:
    store = Store(away)
    async with BatchQueue("q", config(store)) as queue:
        await queue.produce_many(burst(6, of_each))
        await asyncio.sleep(60)
        expected = {n: [*range(of_each)] for n in range(6) if n != away}
        assert store.rows == expected
        await queue.produce_many([Row(tenant, of_each) for tenant in range(6)])
        await asyncio.sleep(60)
        expected = {n: [*range(of_each + 1)] for n in range(6) if n != away}
        assert store.rows == expected
        check_accounts(queue)
        store.away.clear()
        await queue.flush()
    assert store.rows == {n: [*range(of_each + 1)] for n in range(6)}
    check_settled(queue)


async def test_who_is_back_does_not_wait_for_who_is_not() -> None:
    store = Store(1, 2, 4)
    async with BatchQueue("q", config(store)) as queue:
        await queue.produce_many(burst(6, 4))
        await asyncio.sleep(60)
        assert set(store.rows) == {0, 3, 5}
        store.away.remove(2)
        await asyncio.sleep(60)
        assert set(store.rows) == {0, 2, 3, 5}
        store.away.clear()
    assert all(rows == [0, 1, 2, 3] for rows in store.rows.values())
    check_settled(queue)


async def test_where_all_of_a_batch_failed_nobody_else_is_asked() -> None:
    calls: list[list[Row]] = []

    async def write(batch: list[Row]) -> None:
        calls.append(batch)
        if len(calls) < 20:
            raise ConnectionError

    async with BatchQueue("q", config(write)) as queue:
        # The first batch and the second share the tenant 1, these and the third 3.
        await queue.produce_many(burst(4, 4))
        await queue.flush()
    tried = calls[:20]
    assert all(batch == tried[0] for batch in tried)
    assert [len(batch) for batch in calls[19:]] == [5, 5, 5, 1]
    check_settled(queue)


@pytest.mark.parametrize("drain_tasks", [1, 3])
@pytest.mark.parametrize("seed", range(20))
async def test_each_tenants_rows_keep_their_order(seed: int, drain_tasks: int) -> None:
    chance = random.Random(seed)
    store = Store()
    sent: dict[int, int] = defaultdict(int)

    async with BatchQueue("q", config(store, drain_tasks)) as queue:
        for _ in range(60):
            store.away = {n for n in range(6) if chance.random() < 0.3}
            for _ in range(chance.randrange(12)):
                tenant = chance.randrange(6)
                await queue.produce(Row(tenant, sent[tenant]))
                sent[tenant] += 1
            if chance.random() < 0.1:
                # As a recipe does it that ends with whatever it finds.
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
            await asyncio.sleep(chance.random())
            check_accounts(queue)
        store.away.clear()
        await queue.flush()
    for tenant, count in sent.items():
        # A batch that was cancelled may have been written, and comes once more.
        rows = store.rows[tenant]
        firsts = list(dict.fromkeys(rows))
        assert firsts == [*range(count)]
    check_settled(queue)


async def test_at_the_deadline_all_that_is_left_is_returned_once() -> None:
    store = Store(1, 3)
    queue = BatchQueue("q", config(store))
    await queue.start()
    await queue.produce_many(burst(6, 4))
    await asyncio.sleep(10)
    left = await queue.shutdown(timeout=1.0)
    assert sorted(left) == [Row(n, k) for n in (1, 3) for k in range(4)]
    assert queue.stats().handled == 16
    check_settled(queue)


class Ticking:
    """Names a part of each first batch, and is then busy with something else."""

    tick_every = 5.0

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.has_failed: set[int] = set()

    async def consume(self, batch: list[Row]) -> None:
        tenants = {row.tenant for row in batch}
        if not tenants <= self.has_failed:
            self.has_failed |= tenants
            raise PartialFailure(range(1, len(batch)), retry_after=6.0)
        self.rows += batch

    async def on_tick(self) -> None:
        await asyncio.sleep(3.0)


async def test_a_part_whose_retry_has_not_begun_is_not_cut_off() -> None:
    handler, failed = Ticking(), list[Row]()
    settings: BatchQueueConfig[Row] = BatchQueueConfig(
        consumer=handler,
        retry=Retry(attempts=3, retry_on=(OSError,)),
        on_error=lambda batch, _: failed.extend(batch),
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=by_key(lambda row: row.tenant),
    )
    async with BatchQueue("q", settings) as queue:
        await queue.produce_many(burst(2, 3))
        # One drain task is in the hook; the other has a part that is due, and waits.
        await asyncio.sleep(7.0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(60.0)
        assert failed == []
        assert sorted(handler.rows) == [Row(n, k) for n in (0, 1) for k in (1, 2)]
    check_settled(queue)


async def test_what_goes_on_keeps_its_attempts() -> None:
    calls: list[list[int]] = []

    async def write(batch: list[Row]) -> None:
        tenants = [row.tenant for row in batch]
        calls.append(tenants)
        if len(calls) == 2:
            raise ValueError  # Halves it; these have an attempt less than it.
        if 1 in tenants and len(calls) > 1:
            raise PartialFailure([1])
        if tenants != [2]:
            raise ConnectionError

    settings: BatchQueueConfig[Row] = BatchQueueConfig(
        consumer=write,
        retry=Retry(attempts=3, split_on=(ValueError,)),
        on_error=lambda batch, error: None,
        partitions=PartitionPolicy.fixed(4),
        selector=by_key(lambda row: row.tenant),
    )
    async with BatchQueue("q", settings) as queue:
        await queue.produce_many([Row(1, 0), Row(2, 0), Row(2, 1), Row(3, 0)])
        await asyncio.sleep(60.0)
    assert calls.count([3]) == 2
    assert calls[:4] == [[1, 2, 2, 3], [1, 2, 2, 3], [1, 2], [3]]
    assert queue.stats().handled == 3
    check_settled(queue)
