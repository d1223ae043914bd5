"""A loop that runs, stops, runs again and is closed when the test says so."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, SyncBatchQueue
from tests.bridge.gated import Gated
from tests.support.real_loops import real_loops

each_loop = pytest.mark.parametrize(
    "factory", [pytest.param(make, id=name) for name, make in real_loops().items()]
)

Factory = Callable[[], asyncio.AbstractEventLoop]


@contextmanager
def stopped_queue(
    factory: Factory, handler: Gated, config: BatchQueueConfig[Any]
) -> Iterator[tuple[asyncio.Runner, SyncBatchQueue[Any]]]:
    """Give a started queue whose loop runs only while `runner.run` does.

    Leaving it shuts the queue down, at once and for good.
    """

    async def start() -> SyncBatchQueue[Any]:
        queue = BatchQueue[Any]("q", config)
        await queue.start()
        queue.add_handler(int, handler)
        return SyncBatchQueue(queue)

    with asyncio.Runner(loop_factory=factory) as runner:
        sync_queue = runner.run(start())
        loop = runner.get_loop()
        try:
            yield runner, sync_queue
        finally:
            handler.gate.set()
            if not loop.is_closed():
                runner.run(_shut_down(sync_queue._queue))


async def _shut_down(queue: BatchQueue[Any]) -> None:
    await queue.shutdown(10)
