"""C5: bytes that linger under one drain task are taken when another needs them."""

import asyncio

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
)


@pytest.mark.parametrize("seconds", [0.0, 2.0])
async def test_who_lacked_a_slot_and_then_bytes_does_not_wait_for_linger(
    seconds: float,
) -> None:
    async def consume(_: list[bytes]) -> None:
        await asyncio.sleep(seconds)

    config = BatchQueueConfig[bytes](
        consumer=consume,
        linger=5.0,
        buffer_size=2,
        buffer_bytes=100,
        partitions=PartitionPolicy.fixed(2),
        drain_tasks=DrainTaskPolicy.fixed(2),
        selector=lambda item, _: int(item.startswith(b"b")),
    )
    loop = asyncio.get_running_loop()
    async with BatchQueue("q", config) as queue:
        await asyncio.sleep(0.05)
        await queue.produce(b"a" * 90)
        await asyncio.sleep(0.05)
        # Its partition is full, so these are taken at once.
        await queue.produce_many([b"b", b"b"])
        began = loop.time()
        assert await queue.produce(b"b" * 50)
        assert loop.time() - began < 0.1
