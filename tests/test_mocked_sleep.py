"""A test of a user's puts a mock in the place of `asyncio.sleep`, and means its own."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import AsyncMock, call, patch

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, Retry
from batchqueue_async._threads.clock import sleep
from batchqueue_async.ring import Disruptor, SleepingWait, WaitStrategy, YieldingWait
from batchqueue_async.testing import RecordingHandler, settle

# What rebalances is imported when it is needed: here, while the mock is there.
REBALANCED = """
import asyncio
from unittest.mock import AsyncMock, patch
from batchqueue_async import (
    BatchQueue, BatchQueueConfig, DrainTaskPolicy, PartitionPolicy, Rebalancing
)
from batchqueue_async.testing import RecordingHandler, run_virtual

async def main():
    handler = RecordingHandler()
    config = BatchQueueConfig(
        consumer=handler, partitions=PartitionPolicy.fixed(4),
        drain_tasks=DrainTaskPolicy.fixed(2), rebalancing=Rebalancing(interval=60),
    )
    with patch("asyncio.sleep", AsyncMock()):
        async with BatchQueue("rows", config) as queue:
            await queue.produce("row")
            await queue.flush()
    print(*handler.items)

run_virtual(main())
"""


@pytest.fixture
def mocked_sleep() -> Iterator[AsyncMock]:
    with patch("asyncio.sleep", AsyncMock()) as mock:
        yield mock


async def test_the_mock_is_for_the_handler_alone(mocked_sleep: AsyncMock) -> None:
    async def send(batch: list[str]) -> None:
        for pause in (1, 2):
            await asyncio.sleep(pause)
        if mocked_sleep.await_count == 2:
            raise ConnectionError

    retry = Retry(attempts=2, wait_initial=0.5)
    async with BatchQueue("q", BatchQueueConfig(consumer=send, retry=retry)) as queue:
        await queue.produce("item")
        await queue.flush()

    assert mocked_sleep.await_args_list == [call(1), call(2)] * 2


def test_a_queue_that_rebalances_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REBALANCED],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == ["row"]


@pytest.mark.parametrize(
    "wait",
    [SleepingWait(retries=1, sleep=0.1), SleepingWait(), YieldingWait()],
    ids=["asleep", "sleeping", "yielding"],
)
@pytest.mark.usefixtures("mocked_sleep")
async def test_a_ring_s_consumer_lets_its_producer_run(wait: WaitStrategy) -> None:
    seen: list[list[int]] = []
    disruptor = Disruptor(lambda: [0], 8, wait=wait)
    disruptor.handle_events_with(lambda event, *_: seen.append(list(event)))
    async with disruptor as ring:
        for _ in range(5):
            await sleep(0)  # The consumer waits by then.
        await ring.publish_event(lambda event, _, value: event.append(value), 7)
    assert seen == [[0, 7]]


@pytest.mark.usefixtures("mocked_sleep")
async def test_settle_and_a_slow_handler_are_as_before() -> None:
    handler = RecordingHandler[str](delay=5)
    async with BatchQueue("rows", BatchQueueConfig(consumer=handler)) as queue:
        await queue.produce("row")
        await settle()
        assert handler.running == 1
    assert asyncio.get_running_loop().time() == 5
