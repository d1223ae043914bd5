"""A1, B1, C1, D2, F5: a signal handler produces while the loop is at work.

It may strike at any point of the package: each is tried, one at a time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, PartitionPolicy, WhenFull
from tests.bridge.interruptions import Interruption
from tests.engine.until import turns
from tests.support.oracle import check_accounts, check_settled
from tests.support.thorough import IS_THOROUGH

STEP = 1 if IS_THOROUGH else 7
MOST = 5_000
"""More points than any scene has."""

ROOM = BatchQueueConfig[Any](buffer_size=20)
NO_ROOM = BatchQueueConfig[Any](buffer_size=4)
WAYS = {
    "room for all": ROOM,
    "producers wait": NO_ROOM,
    "several partitions": BatchQueueConfig[Any](
        buffer_size=4, partitions=PartitionPolicy.fixed(2)
    ),
    "the oldest go": BatchQueueConfig[Any](
        buffer_size=4, when_full=WhenFull.DROP_OLDEST
    ),
    "small batches": BatchQueueConfig[Any](buffer_size=20, max_batch=2),
    "they linger": BatchQueueConfig[Any](buffer_size=20, linger=1.0),
}


@dataclass
class Scene:
    """One queue, what its handlers got, and what came in between."""

    queue: BatchQueue[Any]
    received: dict[type, list[Any]] = field(
        default_factory=lambda: {int: [], str: [], bytes: []}
    )
    between: list[bool] = field(default_factory=list)

    def produce(self) -> None:
        """Put in one item, as a signal handler does."""
        self.between.append(self.queue.produce_nowait(-1))
        for each in self.queue.stats().partitions:
            assert each.waiting <= each.capacity

    def check(self, sent: list[Any]) -> None:
        """All of it arrived in its order, but for what was dropped and told."""
        dropped = check_settled(self.queue).dropped
        got = [item for items in self.received.values() for item in items]
        assert len(got) + dropped == len(sent) + sum(self.between)
        for item_type, items in self.received.items():
            own = [item for item in items if item != -1]
            order = [item for item in sent if type(item) is item_type]
            # What is dropped is the oldest.
            assert own == order[len(order) - len(own) :]
            assert dropped or own == order


async def at_each_point(
    config: BatchQueueConfig[Any], act: Callable[[Scene], Any], sent: list[Any]
) -> None:
    """Have `act` send it, again and again, until there is no further point."""
    for at in range(0, MOST, STEP):
        async with BatchQueue("q", config) as queue:
            scene = Scene(queue)
            for item_type, items in scene.received.items():
                queue.add_handler(item_type, items.extend)
            # Each drain task naps until something comes.
            await asyncio.sleep(10.0)
            interruption = Interruption(at, scene.produce)
            with interruption:
                await act(scene)
                await turns()
            await asyncio.sleep(10.0)
            assert queue.stats().waiting == 0, f"slept over: {interruption.where}"
        scene.check(sent)
        if not interruption.has_acted:
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("way", WAYS)
async def test_of_a_chunk_and_what_comes_in_between_nothing_is_lost(way: str) -> None:
    chunk = [f(n) for n in range(3) for f in (int, str, lambda n: b"%d" % n)]

    async def act(scene: Scene) -> None:
        assert await scene.queue.produce_many(chunk) == len(chunk)

    await at_each_point(WAYS[way], act, chunk)


@pytest.mark.parametrize("way", WAYS)
async def test_of_single_items_and_what_comes_in_between_nothing_is_lost(
    way: str,
) -> None:
    async def act(scene: Scene) -> None:
        for item in range(6):
            assert await scene.queue.produce(item)

    await at_each_point(WAYS[way], act, [*range(6)])


@pytest.mark.parametrize("way", ["room for all", "producers wait", "small batches"])
async def test_a_flush_waits_for_all_before_it(way: str) -> None:
    async def act(scene: Scene) -> None:
        assert await scene.queue.produce_many(range(6)) == 6
        await scene.queue.flush()
        assert [each for each in scene.received[int] if each != -1] == [*range(6)]
        check_accounts(scene.queue)

    await at_each_point(WAYS[way], act, [*range(6)])
