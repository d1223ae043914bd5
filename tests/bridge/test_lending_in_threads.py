"""C3: a handler in a thread lends its permit to whoever it waits behind."""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    SharedDrainTasks,
    SyncBatchQueue,
    in_thread,
)
from tests.engine.until import until
from tests.support.oracle import check_settled

pytestmark = pytest.mark.real_time

PATIENCE = 30.0
SHARED = SharedDrainTasks("io", DrainTaskPolicy.fixed(1))


@pytest.mark.parametrize("sizes", [{}, {"size_of": lambda _: 1, "buffer_bytes": 100}])
async def test_who_has_a_slot_behind_one_that_waits_for_the_permit(
    sizes: dict[str, Any],
) -> None:
    gate, begun, go = asyncio.Event(), threading.Event(), threading.Event()
    stored: list[int] = []

    async def store(batch: list[int]) -> None:
        stored.extend(batch)
        await gate.wait()

    async with asyncio.timeout(PATIENCE), BatchQueueManager() as manager:
        last = await manager.create(
            "last", BatchQueueConfig[int](consumer=store, buffer_size=2, **sizes)
        )
        bridge = SyncBatchQueue(last)

        async def pass_on(batch: list[int]) -> None:
            assert await last.produce(batch[0])

        def pass_on_in_thread(batch: list[int]) -> None:
            begun.set()
            assert go.wait(PATIENCE)
            assert bridge.produce(batch[0])

        first = await manager.create(
            "first", BatchQueueConfig[int](consumer=pass_on, drain_tasks=SHARED)
        )
        other = await manager.create(
            "other",
            BatchQueueConfig[int](
                consumer=in_thread(pass_on_in_thread), drain_tasks=SHARED
            ),
        )
        await last.produce(0)
        await until(lambda: bool(stored))
        await last.produce_many([1, 2])
        await first.produce(3)
        await until(lambda: last.stats().waiting_producers > 0)
        # Its permit is lent by now.
        await other.produce(4)
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        gate.set()
        # Room for both, and the one ahead needs its permit to fill its slot.
        await until(lambda: len(stored) == 3)
        go.set()
        await manager.flush()
    assert stored == [0, 1, 2, 3, 4]
    for queue in (first, other, last):
        check_settled(queue)
