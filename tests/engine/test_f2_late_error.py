"""F2: a handler that nobody waits for any more leaves no error unseen."""

import asyncio
import gc
from typing import Any

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.until import until


async def test_its_late_error_is_looked_at() -> None:
    """The deadline comes while its timeout's grace runs."""
    unseen: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    ended = asyncio.Event()

    async def consume(_: list[int]) -> None:
        try:
            await asyncio.sleep(100.0)
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)
            raise ValueError from None
        finally:
            ended.set()

    async def scene() -> None:
        queue = BatchQueue("q", BatchQueueConfig[int](handler_timeout=1.0))
        await queue.start()
        queue.add_handler(int, consume)
        await queue.produce(1)
        await until(lambda: queue.stats().in_flight == 1)
        await queue.shutdown(timeout=1.05)
        await ended.wait()
        await asyncio.sleep(1.0)

    await scene()
    # An error that nobody looked at is told when the last reference goes.
    gc.collect()
    assert unseen == []
