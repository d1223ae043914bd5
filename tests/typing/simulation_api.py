"""Type-checks the names of `batchqueue_async.simulation` as a user's program would."""

from collections.abc import Iterator, Sequence
from typing import assert_type

from batchqueue_async import BatchQueueConfig
from batchqueue_async.simulation import (
    Cost,
    Level,
    Plan,
    Sample,
    Simulation,
    Trial,
    measure,
    plan,
    simulate,
)


def load() -> Iterator[tuple[float, object]]:
    yield 0.0, "order"


def cost(batch: list[str]) -> float:
    return 0.001 * len(batch)


def one() -> None:
    seen = simulate(BatchQueueConfig[str](), load(), cost, weights={str: 0.5})
    assert_type(seen, Simulation)
    assert_type(seen.p99, float)
    assert_type(seen.use, tuple[float, ...])
    assert_type(seen.ages, Sequence[float])
    assert_type(seen.left + seen.lost + seen.failed + seen.handled, int)


def many() -> None:
    level = Level(p99=1.0, may_lose=True, waiting=1_000)
    found = plan(
        BatchQueueConfig[str](), load, cost, level, candidates=[BatchQueueConfig[str]()]
    )
    assert_type(found, Plan)
    assert_type(found.best, Trial | None)
    assert_type(found.trials[0].misses, list[str])


async def measured() -> None:
    async def store(rows: list[str]) -> None: ...

    found = await measure(store, ["row"], sizes=(1, 10), calls=5, at_once=2)
    assert_type(found, Cost)
    assert_type(found.samples, tuple[Sample, ...])
    assert_type(found.call + found.item, float)
    simulate(BatchQueueConfig[str](), load(), found)
    Cost([Sample(size=10, seconds=0.1, at_once=2)])
