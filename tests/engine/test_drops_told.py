"""What `DROP_OLDEST` drops is said in the log: at once, and then once a minute."""

import asyncio
import logging
import re

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, PartitionPolicy, WhenFull
from tests.support.oracle import check_settled


def dropping(**settings: object) -> BatchQueueConfig[int]:
    return BatchQueueConfig[int](
        consumer=lambda _: None,
        buffer_size=10,
        when_full=WhenFull.DROP_OLDEST,
        **settings,  # type: ignore[arg-type]
    )


def told(caplog: pytest.LogCaptureFixture) -> list[int]:
    words = r"q: (\d+) items were dropped"
    return [
        int(found[1])
        for each in caplog.records
        if (found := re.match(words, each.getMessage()))
    ]


async def test_the_first_are_told_after_the_cycle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue("q", dropping(partitions=PartitionPolicy.fixed(3))) as queue:
        await queue.produce_many(range(25))
        await asyncio.sleep(0.1)
        assert told(caplog) == [15]
        assert caplog.records[0].levelno == logging.WARNING
        assert "newer ones displaced them in full partitions" in caplog.text


async def test_then_once_a_minute_and_all_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue("q", dropping()) as queue:
        for _ in range(150):
            await queue.produce_many(range(11))
            await asyncio.sleep(1.0)
        assert len(told(caplog)) == 3
        assert "(of " in caplog.text
    assert len(told(caplog)) == 4
    assert sum(told(caplog)) == check_settled(queue).dropped == 150


async def test_what_is_not_dropped_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue("q", dropping()) as queue:
        await queue.produce_many(range(10))
    assert told(caplog) == []
