"""A handler runs in the context of its queue's start, whoever revives its task."""

import asyncio
from contextvars import ContextVar

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until

request: ContextVar[str] = ContextVar("request", default="none")


async def cancel_all() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await turns()


@every_loop
@pytest.mark.parametrize("verb", ["produce", "produce_many", "flush"])
async def test_a_producer_that_needs_it(verb: str) -> None:
    seen: list[str] = []
    request.set("of the start")
    config = BatchQueueConfig[int](consumer=lambda _: seen.append(request.get()))
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await until(lambda: len(seen) == 1)
        await cancel_all()
        request.set("of a producer")
        if verb == "produce_many":
            await queue.produce_many([2, 3])
        else:
            await queue.produce(2)
        if verb == "flush":
            await queue.flush()
        await until(lambda: len(seen) == 2)
    assert seen == ["of the start"] * 2


@every_loop
async def test_its_shutdown() -> None:
    seen: list[str] = []
    request.set("of the start")
    config = BatchQueueConfig[int](
        consumer=lambda _: seen.append(request.get()), linger=10.0
    )
    queue = BatchQueue("q", config)
    await queue.start()
    await queue.produce(1)
    await turns()
    await cancel_all()
    request.set("of who shuts it down")
    await queue.shutdown()
    assert seen == ["of the start"]


@every_loop
async def test_another_queues_handler_that_needs_it() -> None:
    seen: list[str] = []
    request.set("of the second")
    second = BatchQueue(
        "second", BatchQueueConfig[int](consumer=lambda _: seen.append(request.get()))
    )
    async with second:
        await turns()
        await cancel_all()
        request.set("of the first")
        first = BatchQueueConfig[int](consumer=second.produce_many)
        async with BatchQueue("first", first) as queue:
            await queue.produce(1)
            await until(lambda: len(seen) == 1)
    assert seen == ["of the second"]


class Unequal:
    """Says so to nobody."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError


async def test_queues_started_with_the_same_variables_share_one_context() -> None:
    variable = ContextVar[Unequal]("variable")
    config = BatchQueueConfig[int](consumer=lambda _: None)
    first, same, other = (BatchQueue(name, config) for name in "abc")
    variable.set(Unequal())
    async with first, same:
        token = variable.set(Unequal())
        async with other:
            known = [each._parts.tasks.context for each in (first, same, other)]
        variable.reset(token)
    assert known[0] is known[1] is not None
    assert known[2] is not known[0]
