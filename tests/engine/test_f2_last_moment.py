"""F2 at the very deadline: what a handler finished in the same turn was handled."""

import asyncio

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.every_loop import every_loop
from tests.engine.until import turns
from tests.support.oracle import check_settled

pytestmark = every_loop


@pytest.mark.parametrize("late", range(8))
@pytest.mark.parametrize("timeout", [None, 10.0])
async def test_a_batch_is_returned_or_handled_but_never_both(
    timeout: float | None, late: int
) -> None:
    """The handler is let go some turns around the one in which it is cancelled.

    With a timeout it has a task of its own, which may have ended in that turn.
    """
    done: list[int] = []
    gate = asyncio.Event()

    async def consume(batch: list[int]) -> None:
        await gate.wait()
        done.extend(batch)

    config = BatchQueueConfig[int](consumer=consume, handler_timeout=timeout)
    queue = BatchQueue("q", config)
    await queue.start()
    assert await queue.produce(1)
    await turns()
    closing = asyncio.create_task(queue.shutdown(None))
    await turns()
    queue._parts.lifecycle.shorten_deadline(0.0)
    await turns(late)
    gate.set()
    left = await closing
    assert sorted(done + left) == [1]
    stats = check_settled(queue)
    assert (stats.handled, stats.returned) == (len(done), len(left))
