"""Makes the Spark guide's picture: `python -m tests.spark.screenshot [FOLDER]`.

A driver's queue, one of the executors and a streaming query on the live page, all at
work. Into `docs/images`, or another folder. Needs Chromium.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.spark import SparkJobs, map_async, push
from batchqueue_async.telemetry import web_view
from examples.spark_session import quiet_session
from tests.telemetry.screenshots import IMAGES
from tests.telemetry.test_page import at_a_port, browsed

SECONDS = 40
INTERVAL = 4.0
"""Long enough for a few tasks to end: that is when executors' counts come."""


async def store(rows: list[object]) -> None:
    """Stands for an INSERT on the driver."""
    await asyncio.sleep(0.002 + 0.00001 * len(rows))


async def rate(rows: list[dict[str, int]]) -> list[tuple[int]]:
    """Stands for a service that executors ask."""
    await asyncio.sleep(0.005)
    return [(row["id"] % 7,) for row in rows]


def rated(spark: SparkSession) -> DataFrame:
    """Ask it about each row."""
    rows = spark.range(0, 20_000, 1, 8)
    return map_async(rows, rate, "stars BIGINT", max_batch=500)


async def main(folder: Path) -> None:
    """Run a batch job and a stream, and look at them."""
    spark = quiet_session("screenshot")
    with LoopThread() as loop_thread, SparkJobs(spark) as jobs:
        config = BatchQueueConfig[object](consumer=store, max_batch=500)
        queue = loop_thread.open("ratings", config)
        rows = spark.readStream.format("rate").option("rowsPerSecond", 2_000).load()
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                rows.writeStream.format("noop")
                .queryName("clicks")
                .option("checkpointLocation", checkpoint)
                .start()
            )
            app = web_view([loop_thread, jobs], interval=INTERVAL)
            async with at_a_port(app) as url, browsed(url) as page:
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    await asyncio.to_thread(push, rated(spark), queue)
                await page.screenshot(path=folder / "spark_jobs.png")
            query.stop()
    spark.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES))
