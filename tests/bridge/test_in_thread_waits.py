"""A batch that waits for its handler's only thread is not inside of the handler yet."""

import asyncio
import threading
import time

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    in_thread,
    round_robin,
)
from tests.engine.until import until

pytestmark = pytest.mark.real_time


async def test_it_does_not_time_out() -> None:
    stuck, release = "stuck", threading.Event()
    handled: list[str] = []
    failed: list[str] = []

    def work(batch: list[str]) -> None:
        if stuck in batch:
            release.wait(30)
        time.sleep(0.02)
        handled.extend(batch)

    config = BatchQueueConfig[str](
        consumer=in_thread(work),
        max_batch=1,
        handler_timeout=0.3,
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(4),
        selector=round_robin,
        on_error=lambda batch, _: failed.extend(batch),
    )
    async with BatchQueue("q", config) as queue:
        # One after the other they take longer than the timeout.
        await queue.produce_many([f"{number}" for number in range(40)])
        await queue.flush()
        assert len(handled) == 40
        assert failed == []
        await queue.produce(stuck)
        await asyncio.sleep(0.1)
        await queue.produce_many(["a", "b", "c"])
        await until(lambda: failed)
        release.set()
    assert failed == [stuck]
    assert {"a", "b", "c"} <= set(handled)
