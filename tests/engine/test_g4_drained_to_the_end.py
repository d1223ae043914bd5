"""G4: `drain_on_signals` drains to the end, whoever cancels all tasks meanwhile."""

import asyncio
import signal
import subprocess
import sys
import textwrap

import pytest

from batchqueue_async import BatchQueueConfig, BatchQueueManager
from batchqueue_async._engine.drain_on_signals import _Draining
from batchqueue_async._policies.choices import SHUTDOWN_TIMEOUT, Timeout

PROGRAM = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals

    queues, told = [], []

    async def slow(batch):
        await asyncio.sleep(0.02)

    async def begin():
        config = BatchQueueConfig(
            consumer=slow, max_batch=2, on_error=lambda batch, _: told.extend(batch)
        )
        for name in "abc":
            queue = BatchQueue(name, config)
            await queue.start()
            drain_on_signals(queue)
            await queue.produce_many(range(8))
            queues.append(queue)

    async def main():
        await begin()
        await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        while await queues[-1].produce(9):
            await asyncio.sleep(0.001)
        if sys.argv[1] == "cancels all":
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(20)

    try:
        asyncio.run(main())
    finally:
        all_stats = [queue.stats() for queue in queues]
        for stats in all_stats:
            print(stats.accepted - stats.handled - stats.failed)
        print(sum(stats.failed for stats in all_stats), len(told))
    """
)


@pytest.mark.real_time
@pytest.mark.parametrize("way", ["main ends", "cancels all"])
def test_each_queue_is_drained_though_all_tasks_are_cancelled(way: str) -> None:
    """A main loop ends where `produce` says False, and `asyncio.run` cancels all."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, way],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 143
    *lefts, failed, told = map(int, ended.stdout.split())
    # Batches that were with a handler then have failed, as ever, and were told.
    assert lefts == [0, 0, 0], ended.stderr
    assert failed == told <= 6
    assert "without its shutdown" not in ended.stderr


async def test_the_deadline_counts_from_the_begin_of_the_draining() -> None:
    manager = BatchQueueManager()
    config = BatchQueueConfig[int](consumer=lambda _: asyncio.sleep(1_000.0))
    queue = await manager.create("q", config)
    await queue.produce(1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    draining = asyncio.create_task(_Draining(manager, 10.0).close())
    await asyncio.sleep(6.0)
    draining.cancel()
    await draining
    assert 10.0 <= loop.time() - began < 11.0
    assert queue.stats().returned == 1


@pytest.mark.parametrize("times", [1, 3])
async def test_the_rest_of_a_chain_is_drained_though_one_close_is_struck(
    times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As by a signal handler that raises while the task that drains runs."""
    got: list[int] = []

    async def store(batch: list[int]) -> None:
        await asyncio.sleep(0.1)
        got.extend(batch)

    class Struck(BatchQueueManager):
        left = times

        async def close(self, timeout: Timeout = SHUTDOWN_TIMEOUT) -> None:
            if self.left:
                self.left -= 1
                raise TimeoutError
            await super().close(timeout)

    end, start = BatchQueueManager(), Struck()
    for manager in (end, start):
        queue = await manager.create("q", BatchQueueConfig[int](consumer=store))
        await queue.produce(1)
    last, first = _Draining(end, 30.0), _Draining(start, 30.0)
    first.next[signal.SIGTERM] = last
    await first._drain(signal.SIGTERM)
    drained = [end, start] if times == 1 else [end]
    assert len(got) >= len(drained)
    assert all(not manager.queues for manager in drained)
    assert "was struck" in caplog.text
    await start.shutdown_all()
    await start.shutdown_all()
