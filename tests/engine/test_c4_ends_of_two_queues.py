"""C4, F1: a loop's end cancels all, while one queue is shut down and another cleans up.

The shutdown has the drain tasks of its queue go on. Those of other queues do not: the
end of the loop waits for each task that it has cancelled, and would wait for ever.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    round_robin,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.support.oracle import check_settled

pytestmark = pytest.mark.filterwarnings("ignore:the loop of queue:ResourceWarning")

LIVES = 12
"""In which order tasks are cancelled differs from life to life."""


def end_in_time() -> None:
    """Have a loop's end fail that waits for what never ends."""
    loop = asyncio.get_running_loop()
    loop.call_later(1_000.0, loop.stop)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def ended(
    *, drain_tasks: int, is_swallowed: bool, rebalancing: Rebalancing | None = None
) -> list[BatchQueue[Any]]:
    """Return the queues of a program that left both open to the end of its loop."""
    cleaned: list[int] = []

    async def clean_up(batch: list[int]) -> None:
        try:
            await asyncio.sleep(100.0)
        except asyncio.CancelledError:
            # Longer than a loop may take to go on after such a cancellation.
            await asyncio.sleep(0.5)
            cleaned.extend(batch)
            if not is_swallowed:
                raise

    several = BatchQueueConfig[int](
        consumer=clean_up,
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.fixed(drain_tasks),
        selector=round_robin,
        rebalancing=rebalancing,
    )
    taken: list[int] = []
    queues = [
        BatchQueue("cleans up", several),
        BatchQueue("shut down", BatchQueueConfig[int](consumer=taken.extend)),
    ]

    async def own(queue: BatchQueue[Any]) -> None:
        try:
            await asyncio.sleep(100.0)
        finally:
            assert await queue.produce(2)
            await queue.shutdown(5.0)

    async def main() -> asyncio.Task[None]:
        end_in_time()
        for queue in queues:
            await queue.start()
        assert await queues[0].produce(1)
        owner = asyncio.create_task(own(queues[1]))
        await asyncio.sleep(1.0)
        return owner

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        owner = runner.run(main())
    assert owner.cancelled()
    assert (cleaned, taken) == ([1], [2])
    return queues


@pytest.mark.parametrize("is_swallowed", [True, False])
@pytest.mark.parametrize("drain_tasks", [1, 2, 3])
def test_a_loop_ends_though_one_of_its_queues_is_shut_down_meanwhile(
    drain_tasks: int, *, is_swallowed: bool
) -> None:
    for _ in range(LIVES):
        cleans_up, shut_down = ended(drain_tasks=drain_tasks, is_swallowed=is_swallowed)
        stats = check_settled(cleans_up)
        assert stats.handled == int(is_swallowed)
        assert check_settled(shut_down).handled == 1


def test_nor_does_what_rebalances_go_on_for_ever() -> None:
    for _ in range(LIVES):
        queues = ended(
            drain_tasks=2, is_swallowed=False, rebalancing=Rebalancing(interval=0.1)
        )
        for queue in queues:
            check_settled(queue)


def test_nor_where_a_queue_is_opened_as_all_are_cancelled() -> None:
    """As by who tells of the end: that queue's loop looks like one that goes on."""
    told: list[str] = []
    config = BatchQueueConfig[int](
        consumer=lambda _: None,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=round_robin,
        rebalancing=Rebalancing(interval=0.1),
    )

    async def tell() -> None:
        try:
            await asyncio.sleep(100.0)
        finally:
            telling = BatchQueueConfig[str](consumer=told.extend)
            async with BatchQueue("tells", telling) as queue:
                await queue.produce("the end")

    async def main() -> tuple[BatchQueue[int], asyncio.Task[None]]:
        end_in_time()
        queue = BatchQueue("rebalances", config)
        await queue.start()
        task = asyncio.create_task(tell())
        await asyncio.sleep(1.0)
        return queue, task

    # In one of six lives the canary goes first, the rebalancing last.
    for _ in range(5 * LIVES):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            queue, _task = runner.run(main())
        check_settled(queue)
    assert told == ["the end"] * 5 * LIVES
