"""Makes the guides' pictures: `python -m tests.telemetry.screenshots [FOLDER]`.

The live page of two queues under load and, if `make demo` has run, the demo's page.
Into `docs/images`, or another folder, as `make docs` has it. Needs Chromium.
"""

import asyncio
import logging
import random
import sys
from pathlib import Path

from playwright.async_api import async_playwright

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    WhenFull,
)
from tests.telemetry.test_page import ARGUMENTS, CHROMIUM, browsed, served

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
REPORT = ROOT / "out" / "report.html"
SECONDS = 15
"""So long the curves have had to become curves."""
TYPES = [type(name, (), {}) for name in (f"Metric{number}" for number in range(96))]

WEIGHTS = [1 / (number + 2) for number in range(96)]


async def store(batch: list[object]) -> None:
    """Take longer for more."""
    await asyncio.sleep(0.02 + 0.0004 * len(batch))


async def main(folder: Path) -> None:
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
            await asyncio.sleep(SECONDS)
            await page.screenshot(path=folder / "live.png")
        is_over = True
        await loading
    if REPORT.exists():
        await take(REPORT.as_uri(), folder / "flights.png")


async def take(url: str, picture: Path) -> None:
    """Take the picture of a page."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS
        )
        page = await browser.new_page(viewport={"width": 1140, "height": 1600})
        await page.goto(url)
        await page.screenshot(path=picture)
        await browser.close()


if __name__ == "__main__":
    # That items are dropped is what the picture is of.
    logging.disable()
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES))
