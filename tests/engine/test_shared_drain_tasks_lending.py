"""A handler that waits for another queue lends its drain task's permit meanwhile."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueManager,
    PartitionPolicy,
    WouldDeadlock,
    round_robin,
)
from tests.engine.every_loop import every_loop
from tests.engine.sharing import Together, config, shared, sharing, swallow
from tests.engine.until import turns, until
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

LIMIT = 20.0


def fill(queue: BatchQueue[Any]) -> None:
    while queue.produce_nowait("filling"):
        pass


async def test_a_chain_whose_ends_share_the_only_permit_goes_on() -> None:
    """A -> B -> C, where A and C share a permit and B has a drain task of its own."""
    last = RecordingHandler[Any]()
    async with asyncio.timeout(LIMIT), BatchQueueManager() as manager:
        c = await manager.create("c", config(1, last, buffer_size=1))

        async def to_c(batch: list[Any]) -> None:
            assert await c.produce_many(batch) == len(batch)

        apart = config(shared(1, "apart"), to_c, buffer_size=1)
        b = await manager.create("b", apart)

        async def to_b(batch: list[Any]) -> None:
            for item in batch:
                assert await b.produce(item)

        a = await manager.create("a", config(1, to_b, buffer_size=5))
        assert await a.produce_many(range(40)) == 40
        for queue in (a, b, c):
            await queue.flush()
    assert last.items == list(range(40))


async def test_a_chain_on_one_permit_alone_goes_on() -> None:
    """Every queue of it, with buffers of one, and flushes in between."""
    last = RecordingHandler[Any]()
    queues: list[BatchQueue[Any]] = []

    def pass_on(number: int) -> Any:  # noqa: ANN401
        async def consume(batch: list[Any]) -> None:
            for item in batch:
                assert await queues[number + 1].produce(item)
            await queues[number + 1].flush()

        return consume

    handlers = [*(pass_on(number) for number in range(4)), last]
    async with asyncio.timeout(LIMIT), sharing(1, *handlers, buffer_size=1) as made:
        queues.extend(made)
        assert await queues[0].produce_many(range(20)) == 20
        await queues[0].flush()
        assert last.items == list(range(20))


@pytest.mark.parametrize("by_tasks", [False, True])
async def test_it_is_back_before_produce_returns(*, by_tasks: bool) -> None:
    together = Together()
    sink = together.handler("sink", delay=0.003)
    others = [together.handler(f"other {n}", delay=0.002) for n in range(2)]
    got: list[int] = []

    async def consume(batch: list[Any]) -> None:
        if batch[0] != "go":
            return
        for _ in range(20):
            if by_tasks:
                await asyncio.gather(*(queues[1].produce(n) for n in range(3)))
            else:
                assert await queues[1].produce("more")
            together.inside += 1
            together.most = max(together.most, together.inside)
            got.append(together.inside)
            await turns(3)
            together.inside -= 1

    async with (
        asyncio.timeout(LIMIT),
        sharing(1, consume, sink, *others, buffer_size=1) as queues,
    ):
        assert await queues[0].produce("go")
        while len(got) < 20:
            for queue in queues[2:]:
                queue.produce_nowait("busy")
            await asyncio.sleep(0.001)
    assert got == [1] * 20
    assert together.most == 1


async def test_one_that_is_cancelled_goes_on_at_once_and_its_drain_task_waits() -> None:
    """A time limit in the handler is not outlasted by the wait for the permit."""
    together = Together()
    gate, stays = asyncio.Event(), asyncio.Event()
    gave_up = asyncio.Event()

    async def consume(batch: list[Any]) -> None:
        if batch[0] == "go":
            fill(queues[1])
            try:
                async with asyncio.timeout(0.01):
                    await queues[1].produce("more")
            except TimeoutError:
                gave_up.set()
        else:
            stays.set()
            assert together.inside == 0, "it has no permit"

    busy = together.handler("busy", gate=gate)
    # One cycle takes both, and calls the consumer with one after the other.
    in_two = {"partitions": PartitionPolicy.fixed(2), "selector": round_robin}
    async with (
        asyncio.timeout(LIMIT),
        sharing(1, consume, busy, buffer_size=2, max_batch=1, **in_two) as queues,
    ):
        assert await queues[0].produce_many(["go", "next"]) == 2
        await gave_up.wait()
        # The sink's handler has the permit, and the next batch waits for that.
        assert together.inside == 1
        await turns()
        assert not stays.is_set()
        gate.set()
        await stays.wait()


async def test_a_cancelled_wait_for_the_permit_leaves_no_item() -> None:
    """Cancelled between the slot and the permit, it has not accepted (A1, C2)."""
    gate = asyncio.Event()
    outcomes: list[str] = []

    class Sink:
        def __init__(self) -> None:
            self.items: list[Any] = []

        async def consume(self, batch: list[Any]) -> None:
            self.items.extend(batch)
            # It holds the only permit, with a slot free for who waits.
            await gate.wait()

    async def consume(batch: list[Any]) -> None:
        if batch[0] != "go":
            return
        fill(queues[1])
        producing = asyncio.create_task(queues[1].produce("late"))
        await until(lambda: sink.items)
        await turns()
        producing.cancel()
        try:
            outcomes.append(str(await producing))
        except asyncio.CancelledError:
            outcomes.append("cancelled")

    sink = Sink()
    async with (
        asyncio.timeout(LIMIT),
        sharing(1, consume, sink, buffer_size=1) as queues,
    ):
        assert await queues[0].produce("go")
        await until(lambda: outcomes)
        # Its slot is free again.
        assert queues[1].produce_nowait("other")
        gate.set()
    assert outcomes == ["cancelled"]
    assert sink.items == ["filling", "other"]


async def test_on_flush_may_wait_while_its_drain_task_is_at_the_gate() -> None:
    """That holds no permit there, so the queue that on_flush feeds drains."""
    outcomes: list[object] = []
    last = RecordingHandler[Any]()

    class Flushed:
        async def consume(self, batch: list[Any]) -> None:
            await asyncio.sleep(0)

        async def on_flush(self) -> None:
            if outcomes:
                return
            outcomes.append("begun")
            fill(other)
            assert queue.produce_nowait("to the gate")
            await asyncio.sleep(0.01)
            outcomes.append(await other.produce_many(range(5)))

    async with (
        asyncio.timeout(LIMIT),
        sharing(1, Flushed(), last, buffer_size=2) as (queue, other),
    ):
        await queue.flush()
    assert outcomes == ["begun", 5]


async def test_a_cycle_over_one_permit_is_refused_all_the_same() -> None:
    outcomes: list[str] = []
    began: list[int] = []

    def feeds(number: int) -> Any:  # noqa: ANN401
        async def consume(_: list[Any]) -> None:
            if number in began:
                return
            began.append(number)
            try:
                await queues[1 - number].produce_many(range(4))
            except WouldDeadlock:
                outcomes.append("refused")

        return consume

    async with (
        asyncio.timeout(LIMIT),
        sharing(1, feeds(0), feeds(1), buffer_size=1) as queues,
    ):
        assert await queues[0].produce("go")
        await until(lambda: outcomes)
        await turns()
        assert outcomes == ["refused"]


async def test_a_permit_is_lent_to_whoever_asked_first() -> None:
    """And who lent it comes after those who asked before: in order of asking."""
    together = Together()
    order: list[str] = []

    async def consume(batch: list[Any]) -> None:
        if batch[0] == "go":
            fill(queues[1])
            for queue in queues[2:]:
                assert queue.produce_nowait("x")
                await turns(3)
            await queues[1].produce("more")
            order.append("back")

    async def note(_: list[Any]) -> None:
        order.append("other")

    async with (
        asyncio.timeout(LIMIT),
        sharing(1, consume, swallow, note, note, buffer_size=1) as queues,
    ):
        assert await queues[0].produce("go")
        await until(lambda: "back" in order)
    assert order == ["other", "other", "back"]
    assert not together.inside
