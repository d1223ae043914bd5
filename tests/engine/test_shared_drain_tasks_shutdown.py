"""The end of queues on shared drain tasks that wait for a permit, or hold one."""

import asyncio

import pytest

from batchqueue_async import BatchQueueManager
from batchqueue_async._loop_time import LoopTurn
from tests.engine.every_loop import every_loop
from tests.engine.sharing import Together, config, sharing
from tests.engine.until import turns, until
from tests.support.oracle import check_settled

pytestmark = every_loop


async def test_of_a_queue_that_waits_for_a_permit() -> None:
    """At its deadline it gives its items back and its place in the line up."""
    together = Together()
    gate = asyncio.Event()
    handlers = [together.handler(name, gate=gate) for name in ("a", "b", "c")]
    async with sharing(1, *handlers) as (one, two, three):
        for queue in (one, two, three):
            assert await queue.produce(queue.name)
        await turns()
        assert together.entered == ["a"]
        assert await two.shutdown(0.05) == ["q1"]
        gate.set()
        await until(lambda: handlers[2].handled)
        assert together.entered == ["a", "c"]


async def test_it_waits_for_its_turn_while_there_is_time() -> None:
    together = Together()
    gate = asyncio.Event()
    handlers = [together.handler(name, gate=gate) for name in ("a", "b")]
    async with sharing(1, *handlers) as (one, two):
        for queue in (one, two):
            assert await queue.produce(1)
        await turns()
        closing = asyncio.create_task(two.shutdown(None))
        await turns()
        assert not closing.done()
        gate.set()
        assert await closing == []
        assert handlers[1].handled == [1]


async def test_of_a_queue_that_has_its_permit_and_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = Together()
    handlers = [together.handler(name) for name in ("a", "b")]
    turn = asyncio.Event()
    async with sharing(1, *handlers) as (one, two):
        with monkeypatch.context() as others_turn:
            others_turn.setattr(LoopTurn, "is_over", lambda _: not turn.is_set())
            others_turn.setattr(LoopTurn, "next", lambda _: turn.wait())
            assert await one.produce(1)
            await turns()
            assert await one.shutdown(0.0) == [1]
            turn.set()
        assert await two.produce(2)
        await until(lambda: handlers[1].handled)
        assert together.entered == ["b"]


@pytest.mark.asyncio(loop_factories=["virtual"])
@pytest.mark.parametrize("n", [1, 2])
async def test_all_while_handlers_that_hang_hold_all_permits(n: int) -> None:
    """One deadline for all; then nothing is silent, and nothing survives."""
    together = Together()
    never = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with BatchQueueManager() as manager:
        queues = [
            await manager.create(
                f"q{number}", config(n, together.handler("h", gate=never))
            )
            for number in range(5)
        ]
        for queue in queues:
            assert await queue.produce_many([1, 2, 3]) == 3
        await turns()
        assert together.inside == n
        began = loop.time()
        left = await manager.shutdown_all(timeout=0.1)
        assert loop.time() - began == pytest.approx(0.1)
        assert left == {queue.name: [1, 2, 3] for queue in queues}
        assert not manager._shared_permits._shared
    for queue in queues:
        check_settled(queue)


async def test_permits_of_the_last_life_are_all_there_in_the_next() -> None:
    """One after the other hangs until its deadline; none keeps a permit."""
    together = Together()
    async with BatchQueueManager() as manager:
        await manager.create("keeps the capacity alive", config(2))
        for _ in range(5):
            hanging = together.handler("h", gate=asyncio.Event())
            queue = await manager.create("q", config(2, hanging))
            assert await queue.produce(1)
            await hanging.entered()
            assert await manager.shutdown("q", 0.01) == [1]
        gate = asyncio.Event()
        for number in range(3):
            handler = together.handler("h", gate=gate)
            queue = await manager.create(f"last {number}", config(2, handler))
            assert await queue.produce(1)
        await turns()
        assert together.inside == 2
        gate.set()


async def test_flush_by_outsiders_waits_for_the_turn() -> None:
    together = Together()
    gate = asyncio.Event()
    handlers = [together.handler("a", gate=gate), together.handler("b")]
    async with sharing(1, *handlers) as (one, two):
        assert await one.produce(1)
        await handlers[0].entered()
        assert await two.produce(2)
        with pytest.raises(TimeoutError):
            await two.flush(timeout=0.02)
        flushing = asyncio.create_task(two.flush())
        await turns()
        assert not flushing.done()
        gate.set()
        await flushing
        assert handlers[1].handled == [2]
