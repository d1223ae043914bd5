"""Under eager tasks (Python 3.12+) a task runs inside of `create_task`, at first.

Its creator has not stored it yet then. `make eager` runs the whole suite so; here are
the scenarios that depend on it most.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    CostBalancer,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
)
from batchqueue_async._engine.lifecycle.tasks_and_shutdown import Shutdown
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.sharing import config, sharing
from tests.engine.until import until
from tests.support.oracle import check_settled
from tests.support.striking import Struck

pytestmark = [
    every_loop,
    pytest.mark.skipif(
        sys.version_info < (3, 12), reason="eager tasks come with Python 3.12"
    ),
]

TWO = BatchQueueConfig[Any](
    drain_tasks=DrainTaskPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
)


def _eagerly(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:  # noqa: ANN401
    # uvloop hands on what the factory of 3.13.0 doesn't know yet.
    options.pop("eager_start", None)
    return asyncio.eager_task_factory(loop, coro, **options)  # type: ignore[attr-defined, unused-ignore]


@pytest.fixture(autouse=True)
async def _eager_tasks() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    former = loop.get_task_factory()
    loop.set_task_factory(_eagerly)
    yield
    loop.set_task_factory(former)


class Restless(RecordingHandler[Any]):
    """Does something in its first `on_idle`, which may come at once."""

    def __init__(self, act: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._act = act
        self.outcome: object = None

    async def on_idle(self) -> None:
        await super().on_idle()
        if self.idle_calls == 1:
            self.outcome = await self._act()


async def test_the_first_on_idle_may_produce_for_another_drain_task() -> None:
    received = RecordingHandler[Any]()
    received.on_idle = None  # type: ignore[method-assign, assignment]
    queue = BatchQueue("q", TWO)
    queue.add_handler(int, received)
    queue.add_handler(str, Restless(lambda: queue.produce(1)))
    async with queue:
        await until(lambda: received.items == [1])
    check_settled(queue)


async def test_the_first_on_idle_may_shut_the_queue_down() -> None:
    queue = BatchQueue("q", TWO)
    handler = Restless(queue.shutdown)
    queue.add_handler(int, RecordingHandler[int]())
    queue.add_handler(str, handler)
    await queue.start()
    await until(lambda: handler.outcome == [])
    assert not queue.is_running
    assert await queue.shutdown() == []
    assert handler.close_calls == 1
    check_settled(queue)


async def test_batches_with_a_timeout_and_retries() -> None:
    """A quick handler is done before its task is known; a failing one as well."""
    failures = [ValueError("once"), None, None]
    handler = RecordingHandler[int](fail_when=lambda _: failures.pop(0))
    settings = BatchQueueConfig[int](
        consumer=handler,
        handler_timeout=1.0,
        retry=Retry(attempts=2, wait_initial=0.001),
    )
    async with BatchQueue("q", settings) as queue:
        assert await queue.produce_many([1, 2, 3]) == 3
        await queue.flush()
        assert await queue.produce(4)
        await queue.flush()
        assert handler.handled == [1, 2, 3, 4]
        assert handler.flush_calls == 2
    check_settled(queue)


async def test_producers_that_wait_are_served_in_order_and_may_be_cancelled() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    settings = BatchQueueConfig[int](consumer=handler, buffer_size=1)
    async with BatchQueue("q", settings) as queue:
        assert await queue.produce(0)
        await handler.entered()
        calls = [asyncio.create_task(queue.produce(n)) for n in range(1, 6)]
        calls[2].cancel()
        gate.set()
        done = await asyncio.gather(*calls, return_exceptions=True)
    assert handler.handled == [0, 1, 2, 4, 5]
    assert [each is True for each in done] == [True, True, False, True, True]
    check_settled(queue)


async def test_partitions_change_hands_under_load() -> None:
    handlers = [RecordingHandler[Any](delay=0.001) for _ in range(4)]
    settings = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(4),
        rebalancing=Rebalancing(CostBalancer(skip_below=1.0), 0.01),
        buffer_size=5,
    )
    kinds: list[type] = [int, str, bytes, float]
    async with BatchQueue("q", settings) as queue:
        for kind, handler in zip(kinds, handlers, strict=True):
            queue.add_handler(kind, handler)
        for number in range(100):
            await queue.produce_many([number] * (number % 7) + ["x", b"x", 0.5])
        await queue.flush()
    assert handlers[0].handled == sorted(handlers[0].handled)
    assert sum(len(each.handled) for each in handlers) == queue.stats().accepted
    assert all(each.max_concurrency == 1 for each in handlers)
    check_settled(queue)


async def test_queues_that_share_drain_tasks_end_in_order() -> None:
    handlers = [RecordingHandler[int]() for _ in range(3)]
    async with sharing(2, *handlers) as queues:
        for queue in queues:
            assert await queue.produce(1)
    assert all(each.handled == [1] for each in handlers)


async def test_at_the_deadline_everything_returns() -> None:
    handler = RecordingHandler[int](gate=asyncio.Event())
    async with BatchQueueManager() as manager:
        queue = await manager.create("q", config(1, handler))
        assert await queue.produce_many([1, 2, 3]) == 3
        await handler.entered()
        assert await manager.shutdown_all(0.01) == {"q": [1, 2, 3]}
    check_settled(queue)


async def test_the_deadline_holds_though_its_timer_was_struck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shutdown waits no longer than until then: it knows when as it begins."""
    ends, end_now = [], Shutdown.end_now

    def struck_once(shutdown: Shutdown) -> None:
        ends.append(shutdown)
        if len(ends) == 1:
            raise Struck
        end_now(shutdown)

    monkeypatch.setattr(Shutdown, "end_now", struck_once)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    handler = RecordingHandler[int](gate=asyncio.Event())
    queue = BatchQueue("q", BatchQueueConfig(consumer=handler))
    await queue.start()
    await queue.produce(1)
    await handler.entered()
    async with asyncio.timeout(10.0):
        assert await queue.shutdown(0.01) == [1]
    loop.set_exception_handler(None)
    assert len(ends) > 1
