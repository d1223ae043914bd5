"""F2: what a handler raises when it is cut off is told, with a timeout as without."""

import asyncio
import logging

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async.testing import VirtualTimeLoop

TIMEOUTS = pytest.mark.parametrize("timeout", [None, 5.0])


class Cut:
    """A queue whose handler is inside, and whose clean-up fails."""

    def __init__(self, timeout: float | None) -> None:
        self.told: list[str] = []
        config = BatchQueueConfig[int](
            consumer=self.consume,
            handler_timeout=timeout,
            on_error=lambda _, error: self.told.append(str(error)),
        )
        self.queue = BatchQueue("q", config)

    async def consume(self, _: list[int]) -> None:
        try:
            await asyncio.sleep(3.0)
        except asyncio.CancelledError:
            msg = "no rollback"
            raise OSError(msg) from None

    async def begin(self) -> None:
        await self.queue.start()
        await self.queue.produce(1)
        await asyncio.sleep(1.0)
        assert self.queue.stats().in_flight == 1


@TIMEOUTS
async def test_it_is_told_at_a_deadline(timeout: float | None) -> None:
    cut = Cut(timeout)
    await cut.begin()
    assert await cut.queue.shutdown(0.0) == []
    assert cut.told == ["no rollback"]
    assert cut.queue.stats().failed == 1


@TIMEOUTS
async def test_it_is_told_where_all_tasks_are_cancelled(timeout: float | None) -> None:
    cut = Cut(timeout)
    await cut.begin()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.5)
    assert cut.told == ["no rollback"]
    await cut.queue.produce(2)
    await cut.queue.shutdown()
    assert cut.queue.stats().handled == 1


@TIMEOUTS
def test_it_is_told_where_the_loop_ends(
    timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """And asyncio does not log it as an error of a task that nobody looked at."""
    caplog.set_level(logging.ERROR)
    cut = Cut(timeout)
    with (
        pytest.warns(ResourceWarning, match="without its shutdown"),
        asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
    ):
        runner.run(cut.begin())
    assert cut.told == ["no rollback"]
    assert [each for each in caplog.records if each.name == "asyncio"] == []
