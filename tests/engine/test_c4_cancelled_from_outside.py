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


class CancelsItself:
    """Whatever it does, it cancels the task that it runs in, and goes on to its end."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def consume(self, batch: list[int]) -> None:
        self._do("consume")

    def on_idle(self) -> None:
        self._do("on_idle")

    def on_flush(self) -> None:
        self._do("on_flush")

    def on_close(self) -> None:
        self._do("on_close")

    def _do(self, call: str) -> None:
        self.calls.append(call)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()


class Awaits:
    """Whatever it does, it can be cut off in the middle."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def consume(self, batch: list[str]) -> None:
        await self._do("consume")

    async def on_idle(self) -> None:
        await self._do("on_idle")

    async def on_flush(self) -> None:
        await self._do("on_flush")

    async def on_close(self) -> None:
        await self._do("on_close")

    async def _do(self, call: str) -> None:
        await asyncio.sleep(0)
        self.ended.append(call)


async def test_who_cancels_his_own_task_cuts_nobody_else_off() -> None:
    """What was pending at the end of his call struck the next handler, or its hook."""
    cancels, awaits = CancelsItself(), Awaits()
    async with BatchQueue[int | str]("q") as queue:
        queue.add_handler(int, cancels)
        queue.add_handler(str, awaits)
        await queue.produce_many([1, "a"])
        await queue.flush()
        await asyncio.sleep(0.1)
        # Closed one after the other, by one drain task.
        queue.remove_handler(int)
        queue.remove_handler(str)
        await asyncio.sleep(0.1)
    calls = {"consume", "on_idle", "on_flush", "on_close"}
    assert set(cancels.calls) == set(awaits.ended) == calls
    assert queue.stats().not_closed == ()
    assert check_settled(queue).handled == 2


async def test_who_cancels_his_own_task_and_fails_cuts_on_error_not_off() -> None:
    told: list[list[int]] = []

    def consume(_: list[int]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        raise ValueError

    async def on_error(items: list[int], _: BaseException) -> None:
        await asyncio.sleep(0)
        told.append(items)

    config = BatchQueueConfig[int](consumer=consume, on_error=on_error)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    assert told == [[1]]
    assert check_settled(queue).failed == 1


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("waits", [True, False])
def test_who_ends_the_program_with_each_batch_does_not_cut_off_its_end(
    ending: type[BaseException], *, waits: bool
) -> None:
    """The second one struck while `asyncio.run` waited for who left the queue."""
    called: list[int] = []
    failed: list[int] = []

    async def consume(batch: list[int]) -> None:
        called.extend(batch)
        if waits:
            await asyncio.sleep(0)
        raise ending

    async def program() -> None:
        config = BatchQueueConfig[int](
            consumer=consume,
            max_batch=1,
            on_error=lambda batch, _: failed.extend(batch),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(4))
            await asyncio.sleep(10.0)

    with pytest.raises(ending):
        asyncio.run(program())
    assert called == failed == [0, 1, 2, 3]


def test_who_first_ends_the_program_while_it_is_left_is_heard() -> None:
    tasks = []

    async def consume(batch: list[int]) -> None:
        raise SystemExit(3)

    async def hold() -> None:
        config = BatchQueueConfig[int](consumer=consume, linger=60.0)
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await asyncio.sleep(10.0)

    async def program() -> None:
        tasks.append(asyncio.create_task(hold()))
        await asyncio.sleep(0.01)

    with pytest.raises(SystemExit, match="3"):
        asyncio.run(program())
