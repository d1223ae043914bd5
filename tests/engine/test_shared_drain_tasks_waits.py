"""Queues on shared drain tasks that wait for each other: an answer, never a hang.

Each test runs under a time limit: where the promise is broken, it would wait for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueManager, WouldDeadlock
from tests.engine.every_loop import every_loop
from tests.engine.sharing import config, shared, sharing, swallow
from tests.engine.until import turns, until
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

PATIENCE = 30.0

Act = Callable[[BatchQueue[Any]], Awaitable[object]]


async def produce(queue: BatchQueue[Any]) -> object:
    return await queue.produce("more")


async def produce_many(queue: BatchQueue[Any]) -> object:
    return await queue.produce_many(["more", "and more", "and more"])


async def produce_in_a_task(queue: BatchQueue[Any]) -> object:
    return await asyncio.create_task(queue.produce("more"))


async def flush(queue: BatchQueue[Any]) -> object:
    await queue.flush()
    return None


async def shut_down(queue: BatchQueue[Any]) -> object:
    return await queue.shutdown(None)


every_act = pytest.mark.parametrize(
    "act", [produce, produce_many, produce_in_a_task, flush, shut_down]
)


def fill(queue: BatchQueue[Any]) -> None:
    while queue.produce_nowait("filling"):
        pass


class Caller:
    """A handler that fills another queue, and then wants something of it."""

    def __init__(self, act: Act) -> None:
        self.outcomes: list[object] = []
        self.others: list[BatchQueue[Any]] = []
        self._act = act

    async def consume(self, batch: list[Any]) -> None:
        if batch[0] != "go":
            return
        for queue in self.others:
            fill(queue)
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._act(queue)
            except (WouldDeadlock, TimeoutError) as error:
                self.outcomes.append(type(error))
            else:
                self.outcomes.append("went on")


class TestHandlersThatWait:
    """For a full queue, for a flush, for a shutdown."""

    @every_act
    async def test_the_only_permit_is_the_callers_own(self, act: Act) -> None:
        caller = Caller(act)
        async with sharing(1, caller, swallow, buffer_size=2) as (one, other):
            caller.others = [other]
            assert await one.produce("go")
            await until(lambda: caller.outcomes)
            assert caller.outcomes == ["went on"]

    @every_act
    async def test_another_permit_is_free(self, act: Act) -> None:
        caller = Caller(act)
        async with sharing(2, caller, swallow, buffer_size=2) as (one, other):
            caller.others = [other]
            assert await one.produce("go")
            await until(lambda: caller.outcomes)
            assert caller.outcomes == ["went on"]

    @every_act
    async def test_all_permits_are_held_by_those_who_wait(self, act: Act) -> None:
        """They lend theirs, so nobody is refused."""
        callers = [Caller(act) for _ in range(3)]
        async with sharing(3, *callers, swallow, buffer_size=2) as queues:
            for caller in callers:
                caller.others = [queues[-1]]
            for queue in queues[:-1]:
                assert queue.produce_nowait("go")
            await until(lambda: all(each.outcomes for each in callers))
            outcomes = [outcome for each in callers for outcome in each.outcomes]
            assert outcomes == ["went on"] * 3

    @every_act
    async def test_a_queue_on_other_drain_tasks_is_waited_for(self, act: Act) -> None:
        caller = Caller(act)
        async with BatchQueueManager() as manager:
            one = await manager.create("one", config(1, caller))
            apart = config(shared(1, "apart"), swallow, buffer_size=2)
            caller.others = [await manager.create("other", apart)]
            assert await one.produce("go")
            await until(lambda: caller.outcomes)
            assert caller.outcomes == ["went on"]

    async def test_a_task_that_outlives_its_handler_holds_nothing(self) -> None:
        """It waits for room, its handler returns: another one may wait, then."""
        left_behind: list[asyncio.Task[bool]] = []
        gate = asyncio.Event()
        sink = RecordingHandler[Any](gate=gate)

        async def leaves_a_task(_: list[Any]) -> None:
            left_behind.append(asyncio.create_task(queues[2].produce("late")))
            await turns(3)

        caller = Caller(produce)
        settings = {"buffer_size": 2, "max_batch": 2}
        async with sharing(2, leaves_a_task, caller, sink, **settings) as queues:
            assert await queues[2].produce("first")
            await sink.entered()
            fill(queues[2])
            assert await queues[0].produce("go")
            await until(lambda: left_behind)
            await turns(10)
            # The sink's handler holds one permit, the other one is free again.
            caller.others = [queues[2]]
            assert await queues[1].produce("go")
            await turns()
            assert caller.outcomes == []
            gate.set()
            await until(lambda: caller.outcomes)
            assert caller.outcomes == ["went on"]
            assert await left_behind[0]

    async def test_a_wait_that_has_been_served_counts_no_more(self) -> None:
        """A chain under load: the middle one takes, which lets the first one go on,
        and in the same turn waits for the last one."""
        outcomes: list[object] = []

        async def first(_: list[Any]) -> None:
            fill(middle_queue)
            outcomes.append(await middle_queue.produce("served"))

        async def middle(_: list[Any]) -> None:
            fill(last_queue)
            try:
                await last_queue.produce("more")
            except WouldDeadlock as error:
                outcomes.append(error)

        async with sharing(2, first, middle, swallow, buffer_size=2) as queues:
            first_queue, middle_queue, last_queue = queues
            assert await first_queue.produce("go")
            await until(lambda: outcomes)
        assert outcomes == [True]

    async def test_on_close_holds_none(self) -> None:
        """Its drain task has ended, so the full queue that it produces into drains."""
        handler = RecordingHandler[Any]()
        produced: list[bool] = []

        async def on_close() -> None:
            fill(sink)
            produced.append(await sink.produce("last words"))

        handler.on_close = on_close  # type: ignore[method-assign]
        received = RecordingHandler[Any]()
        async with BatchQueueManager() as manager:
            sink = await manager.create("sink", config(1, received, buffer_size=2))
            await manager.create("q", config(1, handler))
        assert produced == [True]
        assert received.items[-1] == "last words"
