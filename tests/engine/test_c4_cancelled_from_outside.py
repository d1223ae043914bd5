"""The queue's own tasks are cancelled by strangers, at bad moments, and it goes on."""

import asyncio
from collections.abc import Sequence

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    in_thread,
    round_robin,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import tasks_of
from tests.engine.until import until
from tests.support.oracle import check_settled


class Swap:
    """Moves every partition in every round."""

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Sequence[int]:
        return [(owner + 1) % drain_tasks for owner in owners]


@every_loop
async def test_rebalancing_in_a_handoff() -> None:
    """Its partitions must not stay without an owner; E4."""
    gate = asyncio.Event()
    received: list[int] = []

    async def consume(batch: list[int]) -> None:
        await gate.wait()
        received.extend(batch)

    config = BatchQueueConfig[int](
        consumer=consume,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=round_robin,
        rebalancing=Rebalancing(Swap(), 0.05),
    )
    async with BatchQueue("q", config) as queue:

        def owners() -> list[int | None]:
            return [each.owner for each in queue.stats().partitions]

        await queue.produce_many([1, 2])
        await until(lambda: None in owners())
        (rebalancing,) = [t for t in tasks_of(queue) if "rebalancing" in t.get_name()]
        rebalancing.cancel()
        await until(lambda: None not in owners())
        gate.set()
        before = owners()
        await queue.produce_many([3, 4])
        await queue.flush(timeout=5.0)
        await until(lambda: None not in owners() and owners() != before)
    assert sorted(received) == [1, 2, 3, 4]
    check_settled(queue)


@every_loop
async def test_a_drain_task_before_its_first_step() -> None:
    received: list[int] = []
    async with BatchQueue("q", BatchQueueConfig(consumer=received.extend)) as queue:
        for task in tasks_of(queue):
            task.cancel()
        await queue.produce(1)
        await until(lambda: received == [1])
    check_settled(queue)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("form", ["in_thread", "handler_timeout"])
def test_what_ends_the_program_fails_its_batch_once(
    ending: type[BaseException], form: str
) -> None:
    """The call runs in a task of its own, from which asyncio would end the loop."""
    calls: list[list[int]] = []
    failed: list[tuple[list[int], BaseException]] = []

    def consume(batch: list[int]) -> None:
        calls.append(batch)
        raise ending

    async def consume_async(batch: list[int]) -> None:
        consume(batch)

    async def program() -> None:
        config = BatchQueueConfig[int](
            consumer=in_thread(consume) if form == "in_thread" else consume_async,
            handler_timeout=5.0 if form == "handler_timeout" else None,
            on_error=lambda batch, error: failed.append((batch, error)),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await asyncio.sleep(10.0)

    with pytest.raises(ending):
        asyncio.run(program())
    assert calls == [[1]]
    assert [(batch, type(error)) for batch, error in failed] == [([1], ending)]
