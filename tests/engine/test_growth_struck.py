"""E4: a signal handler raises while `add_handler` makes partitions."""

import contextlib

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
)
from tests.bridge.interruptions import Interruption, ctrl_c
from tests.support.oracle import check_accounts

MOST_POINTS = 2_000
TYPES = [type(f"Type{number}", (), {}) for number in range(4)]


async def struck_at(point: int) -> bool:
    """Strike a queue that grows, and use it on; returns whether it was struck."""
    handled: list[object] = []
    config = BatchQueueConfig[object](
        partitions=PartitionPolicy.adaptive(), drain_tasks=DrainTaskPolicy.fixed(2)
    )
    async with BatchQueue("growing", config) as queue:
        for each in TYPES[:3]:
            queue.add_handler(each, handled.extend)
        strike = Interruption(point, ctrl_c, at_entries=True)
        with contextlib.suppress(KeyboardInterrupt), strike:
            queue.add_handler(TYPES[3], handled.extend)
        owners = [each.owner for each in queue.stats().partitions]
        assert owners == [index % 2 for index in range(len(owners))]
        # As whoever has caught it would.
        queue.add_handler(TYPES[3], handled.extend)
        await queue.produce_many([each() for each in TYPES * 5])
        await queue.flush()
        check_accounts(queue)
    assert len(handled) == 20
    return strike.has_acted


async def test_each_partition_has_an_owner_wherever_add_handler_is_struck() -> None:
    points = 0
    while await struck_at(points):
        points += 1
        assert points < MOST_POINTS
    assert points > 10
