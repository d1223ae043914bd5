"""Makes the pictures of the guide: `python -m tests.telemetry.screenshots`."""

import asyncio
import random
from pathlib import Path

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    WhenFull,
)
from tests.telemetry.test_page import browsed, served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TYPES = [type(name, (), {}) for name in (f"Metric{number}" for number in range(96))]

WEIGHTS = [1 / (number + 2) for number in range(96)]


async def store(batch: list[object]) -> None:
    """Take longer for more."""
    await asyncio.sleep(0.02 + 0.0004 * len(batch))


async def main() -> None:
    """Run two queues under load, and look at them."""
    metrics = BatchQueueConfig[object](
        partitions=PartitionPolicy.fixed(96),
        drain_tasks=DrainTaskPolicy.fixed(4),
        buffer_size=200,
        max_batch=50,
        when_full=WhenFull.DROP_OLDEST,
        rebalancing=Rebalancing(interval=2.0),
        measure_handlers=True,
    )
    async with BatchQueueManager() as manager:
        queue = await manager.create("metrics", metrics)
        for item_type in TYPES:
            queue.add_handler(item_type, store)
        logs = await manager.create("logs", BatchQueueConfig[object](consumer=store))
        is_over = False

        async def load() -> None:
            while not is_over:
                hot = random.choices(TYPES, WEIGHTS, k=60)
                await queue.produce_many([each() for each in hot])
                await logs.produce(object())
                await asyncio.sleep(0.02)

        loading = asyncio.create_task(load())
        async with served(manager) as url, browsed(url) as page:
            await asyncio.sleep(20)
            await page.screenshot(path=IMAGES / "live.png")
        is_over = True
        await loading


if __name__ == "__main__":
    asyncio.run(main())
