"""Logs to a collector that answers slowly, then not at all, and goes on meanwhile.

python examples/dead_collector.py
"""

import asyncio
import logging
import threading

from batchqueue_async.logging import BatchingHandler

FIRST = 2000
collected: list[str] = []


async def collect(records: list[logging.LogRecord]) -> None:
    """Stands for a POST; after 2,000 lines the collector is dead."""
    await asyncio.sleep(0.01 if len(collected) < FIRST else 3600)
    collected.extend(record.getMessage() for record in records)


def main() -> None:
    handler = BatchingHandler(collect, capacity=1000, max_batch=500, shutdown_timeout=1)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    log = logging.getLogger("shop")
    for number in range(FIRST):
        log.info("order %d", number)
        if number % 500 == 0:
            handler.flush()
    handler.flush()
    print(f"{len(collected)} lines were collected, {handler.dropped} dropped")

    def storm() -> None:
        for number in range(5000):
            log.info("storm %d", number)

    threads = [threading.Thread(target=storm) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(f"of 20000 more {handler.dropped} were dropped, and nobody had to wait")


if __name__ == "__main__":
    main()
