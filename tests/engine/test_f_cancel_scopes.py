"""F: anyio's cancel scopes don't cut leaving off; `Task.cancel` is F3's, as before.

A scope that is cancelled cancels at every `await`, again and again. Handlers here take
many of them.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])

Open = Callable[[RecordingHandler[int]], Any]
MOST = 300


@asynccontextmanager
async def one_queue(handler: RecordingHandler[int]) -> AsyncIterator[BatchQueue[int]]:
    config = BatchQueueConfig[int](consumer=handler, max_batch=3)
    async with BatchQueue("q", config) as queue:
        yield queue


@asynccontextmanager
async def one_manager(handler: RecordingHandler[int]) -> AsyncIterator[BatchQueue[int]]:
    async with BatchQueueManager() as manager:
        config = BatchQueueConfig[int](consumer=handler, max_batch=3)
        queue = await manager.create("q", config)

        async def pass_on(batch: list[int]) -> None:
            await queue.produce_many(batch)

        first = await manager.create("first", BatchQueueConfig[int](consumer=pass_on))
        yield first


both = pytest.mark.parametrize("opened", [one_queue, one_manager])


async def fill_and_wait(opened: Open, handler: RecordingHandler[int]) -> None:
    async with opened(handler) as queue:
        assert await queue.produce_many(range(9)) == 9
        await anyio.sleep_forever()


async def fill_at_once(opened: Open, handler: RecordingHandler[int]) -> None:
    async with opened(handler) as queue:
        # Not `produce_many`: a cancelled scope would cut that off.
        assert all(queue.produce_nowait(item) for item in range(9))


async def in_move_on_after(opened: Open, handler: RecordingHandler[int]) -> None:
    with anyio.move_on_after(0.001) as scope:
        await fill_and_wait(opened, handler)
    assert scope.cancelled_caught


async def in_fail_after(opened: Open, handler: RecordingHandler[int]) -> None:
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.001):
            await fill_and_wait(opened, handler)


async def in_nested_scopes(opened: Open, handler: RecordingHandler[int]) -> None:
    with anyio.move_on_after(0.001), anyio.CancelScope(), anyio.move_on_after(0.001):
        await fill_and_wait(opened, handler)


async def in_a_scope_that_is_cancelled_before(
    opened: Open, handler: RecordingHandler[int]
) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await fill_at_once(opened, handler)


async def beside_a_sibling_that_fails(
    opened: Open, handler: RecordingHandler[int]
) -> None:
    async def fail() -> None:
        await anyio.sleep(0.001)
        raise KeyError

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill_and_wait, opened, handler)
            tasks.start_soon(fail)

    with pytest.raises(ExceptionGroup):
        await both()


@pytest.mark.parametrize(
    "scoped",
    [
        in_move_on_after,
        in_fail_after,
        in_nested_scopes,
        in_a_scope_that_is_cancelled_before,
        beside_a_sibling_that_fails,
    ],
)
@both
async def test_all_is_handled(
    scoped: Callable[..., Awaitable[None]], opened: Open
) -> None:
    handler = RecordingHandler[int](delay=0.002)
    await scoped(opened, handler)
    assert handler.handled == list(range(9))
    assert handler.calls[-1] == "on_close"


@both
async def test_a_scope_that_is_cancelled_at_any_tick_of_leaving(opened: Open) -> None:
    for tick in count():
        handler = RecordingHandler[int]()
        scope = anyio.CancelScope()
        leaving = asyncio.create_task(_in_scope(scope, opened, handler))
        await turns(tick)
        has_ended = leaving.done()
        scope.cancel()
        async with asyncio.timeout(30.0):
            await leaving
        assert handler.handled == list(range(9))
        assert handler.close_calls == 1
        if has_ended:
            break
        assert tick < MOST
    assert tick > 5


async def _in_scope(
    scope: anyio.CancelScope, opened: Open, handler: RecordingHandler[int]
) -> None:
    with scope:
        await fill_at_once(opened, handler)


async def test_close_is_shielded_and_shutdown_is_not() -> None:
    handler = RecordingHandler[int](delay=0.005)
    for verb, is_done in (("shutdown", False), ("close", True)):
        queue = BatchQueue(verb, BatchQueueConfig[int](consumer=handler))
        await queue.start()
        await queue.produce(1)
        with anyio.move_on_after(0.001):
            await getattr(queue, verb)()
        assert (queue.stats().handled == 1) is is_done
        await until(lambda queue=queue: queue.stats().handled == 1)  # type: ignore[misc]
        await queue.shutdown()


async def test_the_scope_goes_on_cancelling_once_the_block_is_left() -> None:
    after: list[str] = []
    with anyio.move_on_after(0.001):
        await fill_at_once(one_queue, RecordingHandler[int](delay=0.005))
        await anyio.lowlevel.checkpoint()
        after.append("not reached")
    assert after == []


async def test_a_native_cancellation_leaves_at_once_and_it_goes_on() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    config = BatchQueueConfig[int](consumer=handler)
    queue = BatchQueue("q", config)

    async def leave() -> None:
        with anyio.CancelScope():
            async with queue:
                await queue.produce(1)

    leaving = asyncio.create_task(leave())
    await handler.entered()
    await turns()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    gate.set()
    await until(lambda: queue.stats().handled == 1)
    await queue.shutdown()


async def test_without_any_scope_there_is_nothing_to_shield() -> None:
    handler = RecordingHandler[int]()
    await fill_at_once(one_queue, handler)
    assert handler.handled == list(range(9))


class TestItsOwnDeadline:
    @virtual
    async def test_of_a_queue(self) -> None:
        left: list[int] = []
        config = BatchQueueConfig[int](
            consumer=RecordingHandler[int](gate=asyncio.Event()),
            on_error=lambda batch, _: left.extend(batch),
            shutdown_timeout=7.0,
        )
        began = asyncio.get_running_loop().time()
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
        assert 7.0 <= asyncio.get_running_loop().time() - began < 7.5
        assert left == [1, 2]
        assert queue.stats().returned == 2

    @virtual
    async def test_of_a_manager(self) -> None:
        began = asyncio.get_running_loop().time()
        left: list[int] = []
        async with BatchQueueManager(shutdown_timeout=3.0) as manager:
            for name in ("a", "b"):
                config = BatchQueueConfig[int](
                    consumer=RecordingHandler[int](gate=asyncio.Event()),
                    on_error=lambda batch, _: left.extend(batch),
                )
                await (await manager.create(name, config)).produce(1)
        assert 3.0 <= asyncio.get_running_loop().time() - began < 3.5
        assert left == [1, 1]

    @virtual
    async def test_close_without_an_argument_takes_it_and_one_with_does_not(
        self,
    ) -> None:
        for timeout, expected in (((), 7.0), ((1.0,), 1.0)):
            config = BatchQueueConfig[int](
                consumer=RecordingHandler[int](gate=asyncio.Event()),
                shutdown_timeout=7.0,
            )
            queue = BatchQueue("q", config)
            await queue.start()
            await queue.produce(1)
            began = asyncio.get_running_loop().time()
            await queue.close(*timeout)
            took = asyncio.get_running_loop().time() - began
            assert expected <= took < expected + 0.5

    @virtual
    async def test_none_means_none(self) -> None:
        handler = RecordingHandler[int](delay=1000.0)
        config = BatchQueueConfig[int](consumer=handler, shutdown_timeout=None)
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        assert handler.handled == [1]


class TestOtherVerbsInScopes:
    async def test_start_in_a_scope_that_is_cancelled(self) -> None:
        queue = BatchQueue[int]("q")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await queue.start()
        assert queue.is_running
        await queue.shutdown()
        check_settled(queue)

    async def test_create_that_is_cancelled_at_any_tick(self) -> None:
        for tick in range(5):
            async with BatchQueueManager() as manager:
                creating = asyncio.create_task(manager.create("q"))
                await turns(tick)
                creating.cancel()
                await asyncio.wait({creating})
                if creating.cancelled():
                    assert manager.get("q") is None
                    assert (await manager.create("q")).is_running

    async def test_a_flush_is_cut_off_and_leaves_nothing(self) -> None:
        handler = RecordingHandler[int](delay=0.01)
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
            await queue.produce(1)
            with anyio.move_on_after(0.001) as scope:
                await queue.flush()
            assert scope.cancelled_caught
            assert not any(e.accounts.is_watched for e in queue._parts.partitions)
            await queue.flush()
            assert handler.handled == [1]

    async def test_a_flushs_timeout_within_a_scope_is_a_timeout_error(self) -> None:
        handler = RecordingHandler[int](delay=0.01)
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
            await queue.produce(1)
            with anyio.fail_after(30.0), pytest.raises(TimeoutError):
                await queue.flush(timeout=0.001)


WRONG: list[tuple[Any, type[Exception]]] = [
    ("30", TypeError),
    (True, TypeError),
    (math.nan, ValueError),
    (math.inf, ValueError),
    (-1.0, ValueError),
]


@pytest.mark.parametrize("wrong, error", WRONG)
class TestTimeoutsAreCheckedWhenGiven:
    async def test_by_a_queue_before_anything_is_closed(
        self, wrong: float, error: type[Exception]
    ) -> None:
        async with BatchQueue[int]("q") as queue:
            for verb in (queue.flush, queue.shutdown, queue.close):
                with pytest.raises(error, match="timeout"):
                    await verb(wrong)
            assert queue.is_running

    async def test_by_a_manager_before_anything_is_closed(
        self, wrong: float, error: type[Exception]
    ) -> None:
        async with BatchQueueManager() as manager:
            queue = await manager.create("q")
            with pytest.raises(error, match="timeout"):
                await manager.shutdown("q", wrong)
            for verb in (manager.shutdown_all, manager.close):
                with pytest.raises(error, match="timeout"):
                    await verb(wrong)
            with pytest.raises(error, match="timeout"):
                manager.shorten_deadline(wrong)
            assert queue.is_running
            assert manager.get("q") is queue

    async def test_by_a_declaration(self, wrong: float, error: type[Exception]) -> None:
        with pytest.raises(error, match="shutdown_timeout"):
            BatchQueueConfig[int](shutdown_timeout=wrong)
        with pytest.raises(error, match="shutdown_timeout"):
            BatchQueueManager(shutdown_timeout=wrong)
