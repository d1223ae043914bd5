"""B3 where a call is left behind: its handler is not entered until that has ended."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    SyncBatchQueue,
    WouldDeadlock,
    by_type,
    in_thread,
    round_robin,
)
from tests.engine.until import turns, until
from tests.support.oracle import check_settled

LIMIT = 30.0


class Stubborn:
    """Goes on, whoever cancels it, until it is let go."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.batches: list[list[Any]] = []
        self.let_go = asyncio.Event()

    async def consume(self, batch: list[Any]) -> None:
        self.batches.append(batch)
        with self.entered():
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    continue

    @contextmanager
    def entered(self) -> Iterator[None]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            yield
        finally:
            self.inside -= 1


class A(int): ...


class B(int): ...


def drain_task_of(queue: BatchQueue[Any], index: int = 0) -> asyncio.Task[None]:
    name = f"{queue.name}: drain task {index}"
    (task,) = (each for each in asyncio.all_tasks() if each.get_name() == name)
    return task


@pytest.mark.parametrize("drain_tasks", [1, 2])
@pytest.mark.parametrize("way", ["consumer", "selector", "two types"])
async def test_it_is_entered_as_often_as_there_are_drain_tasks(
    way: str, drain_tasks: int
) -> None:
    """Also after an attempt that could not be stopped, from another partition."""
    handler = Stubborn()
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.fixed(4),
        consumer=handler if way == "consumer" else None,
        handler_timeout=0.1,
        idle=IdleBackoff(0.001, 0.002),
        selector=by_type if way == "two types" else round_robin,
    )
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        if way != "consumer":
            queue.add_handler(A, handler)
            queue.add_handler(B, handler)
        for number in range(20):
            assert await queue.produce((A, B)[number % 2](number))
            await asyncio.sleep(0.05)
        assert handler.inside >= 1
        assert handler.most <= drain_tasks
        handler.let_go.set()
        await until(lambda: not queue.stats().waiting and not queue.stats().in_flight)
    assert handler.most <= drain_tasks
    check_settled(queue)


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("pause", [0, 3])
async def test_stray_cancellations_of_the_drain_task(times: int, pause: int) -> None:
    handler = Stubborn()
    config = BatchQueueConfig[Any](consumer=handler, handler_timeout=1.0)
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        assert await queue.produce(1)
        await until(lambda: handler.inside)
        for _ in range(times):
            drain_task_of(queue).cancel()
            await turns(pause)
        assert await queue.produce(2)
        await asyncio.sleep(0.5)
        assert handler.batches == [[1]]
        # It is bounded all the same: then the drain task goes on without it.
        await until(lambda: queue.stats().failed == 1)
        handler.let_go.set()
        await until(lambda: len(handler.batches) == 2)
    assert handler.most == 1
    assert check_settled(queue).handled == 1


async def test_stray_cancellations_in_the_grace_after_the_timeout() -> None:
    handler = Stubborn()
    config = BatchQueueConfig[Any](consumer=handler, handler_timeout=0.1)
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        assert await queue.produce(1)
        await asyncio.sleep(0.15)
        for _ in range(3):
            drain_task_of(queue).cancel()
            await turns()
        assert await queue.produce(2)
        await until(lambda: queue.stats().failed == 1)
        await asyncio.sleep(0.5)
        assert handler.batches == [[1]]
        handler.let_go.set()
        await until(lambda: len(handler.batches) == 2)
    assert handler.most == 1


@pytest.mark.real_time
@pytest.mark.parametrize("timeout", [None, 0.2])
async def test_a_thread_outlasts_whatever_is_cancelled(timeout: float | None) -> None:
    """The drain task twice, and then every task of a loop that lives on."""
    go, inside, most = threading.Event(), list[int](), list[int]()

    def consume(batch: list[Any]) -> None:
        inside.append(1)
        most.append(len(inside))
        go.wait(10)
        inside.pop()

    config = BatchQueueConfig[Any](
        consumer=in_thread(consume), handler_timeout=timeout, idle=IdleBackoff(0.001)
    )
    async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
        assert await queue.produce(1)
        await until(lambda: inside)
        for _ in range(2):
            drain_task_of(queue).cancel()
            await asyncio.sleep(0.01)
        for _ in range(2):
            here = asyncio.current_task()
            for task in asyncio.all_tasks() - {here}:
                task.cancel()
            await asyncio.sleep(0.01)
        assert await queue.produce(2)
        await asyncio.sleep(0.3)
        go.set()
        await until(lambda: not queue.stats().waiting and not queue.stats().in_flight)
    assert set(most) == {1}


class TestHooks:
    """`handler_timeout` bounds them, and one that goes on keeps its handler."""

    @pytest.mark.parametrize("hook", ["on_idle", "on_flush", "on_close"])
    @pytest.mark.parametrize("is_stubborn", [True, False])
    async def test_a_hook_that_hangs(
        self, hook: str, caplog: pytest.LogCaptureFixture, *, is_stubborn: bool
    ) -> None:
        handler = Stubborn()
        entered: list[str] = []

        async def hang() -> None:
            if entered:
                return
            entered.append(hook)
            if is_stubborn:
                await Stubborn.consume(handler, ["hook"])
            else:
                await asyncio.get_running_loop().create_future()

        async def consume(batch: list[Any]) -> None:
            handler.batches.append(batch)
            with handler.entered():
                await asyncio.sleep(0)

        def hooked() -> Any:  # noqa: ANN401
            made = type("Hooked", (), {})()
            made.consume = consume
            setattr(made, hook, hang)
            return made

        other: list[Any] = []
        config = BatchQueueConfig[Any](
            handler_timeout=0.1, idle=IdleBackoff(0.001, 0.002)
        )
        async with asyncio.timeout(LIMIT):
            async with BatchQueue("q", config) as queue:
                queue.add_handler(int, hooked())
                queue.add_handler(str, other.extend)
                if hook == "on_close":
                    queue.remove_handler(int)
                elif hook == "on_flush":
                    with pytest.raises(Exception, match="failure"):
                        await queue.flush()
                await until(lambda: entered)
                await asyncio.sleep(0.5)
                assert queue.produce_nowait("text")
                await until(lambda: other == ["text"])
                if hook != "on_close":
                    assert queue.produce_nowait(1)
                    await asyncio.sleep(0.5)
                    assert bool(handler.inside) == is_stubborn
                    handler.let_go.set()
                    await until(lambda: [1] in handler.batches)
                handler.let_go.set()
        assert handler.most <= 1
        assert check_settled(queue).failed == 0
        texts = [each.getMessage() for each in caplog.records]
        assert any(f"{hook} of" in text and "failed" in text for text in texts)
        stops = [text for text in texts if "cannot be stopped" in text]
        assert len(stops) == is_stubborn

    @pytest.mark.parametrize("is_stubborn", [True, False])
    async def test_on_error_that_hangs(
        self, caplog: pytest.LogCaptureFixture, *, is_stubborn: bool
    ) -> None:
        handler = Stubborn()
        handled: list[Any] = []

        async def on_error(batch: list[Any], _: BaseException) -> None:
            if is_stubborn:
                await handler.consume(batch)
            else:
                await asyncio.get_running_loop().create_future()

        def consume(batch: list[Any]) -> None:
            if 1 in batch:
                raise ValueError
            handled.extend(batch)

        config = BatchQueueConfig[Any](
            consumer=consume, on_error=on_error, handler_timeout=0.1
        )
        async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
            assert await queue.produce(1)
            await asyncio.sleep(0.5)
            assert await queue.produce(2)
            await until(lambda: handled == [2])
            handler.let_go.set()
        stats = check_settled(queue)
        assert (stats.failed, stats.handled) == (1, 1)
        messages = [
            each.getMessage()
            for each in caplog.records
            if each.levelno == logging.ERROR
        ]
        assert any("on_error raised" in message for message in messages)


async def test_a_handler_that_comes_back_before_its_on_close_is_not_closed() -> None:
    """With a `handler_timeout` the hook runs a turn later, on a task of its own."""
    calls: list[str] = []

    class Closed:
        def consume(self, batch: list[Any]) -> None:
            calls.append("consume")

        async def on_close(self) -> None:
            calls.append("on_close")

    handler = Closed()
    config = BatchQueueConfig[Any](handler_timeout=1.0)
    for turn in range(12):
        calls.clear()
        async with asyncio.timeout(LIMIT), BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await turns()
            queue.remove_handler(int)
            await turns(turn)
            if not calls:
                queue.add_handler(int, handler)
                assert queue.produce_nowait(1)
        assert calls in (["on_close"], ["consume", "on_close"])


@pytest.mark.parametrize("drain_tasks", [1, 2])
@pytest.mark.parametrize("act", ["flush", "shutdown", "close", "produce"])
@pytest.mark.asyncio(loop_factories=["virtual"])
async def test_one_that_goes_on_does_not_wait_for_itself(
    act: str, drain_tasks: int
) -> None:
    """Its partitions wait for it: so it would wait for ever, and so would they."""
    came: list[object] = []

    async def go_on(batch: list[int]) -> None:
        if batch[0] > 1:
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10.0)
        await asyncio.sleep(3.0)
        waits: dict[str, Callable[[], Awaitable[object]]] = {
            "flush": queue.flush,
            "shutdown": lambda: queue.shutdown(None),
            "close": lambda: queue.close(None),
            "produce": lambda: queue.produce_many(range(2, 10)),
        }
        try:
            came.append(await waits[act]())
        except Exception as error:  # noqa: BLE001 - looked at below
            came.append(error)

    config = BatchQueueConfig[int](
        consumer=go_on,
        max_batch=1,
        buffer_size=2,
        handler_timeout=1.0,
        on_error=lambda _batch, _error: None,
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, count: item % count,
    )
    queue = BatchQueue[int]("q", config)
    await queue.start()
    assert await queue.produce_many([0, 2, 4, 1 if drain_tasks == 2 else 3]) == 4
    await asyncio.sleep(100.0)
    # The first flush reports both batches.
    answers: dict[str, Any] = {
        "flush": (DeliveryError, type(None)),
        "produce": WouldDeadlock,
    }
    expected = answers.get(act, (list, type(None)))
    assert [isinstance(each, expected) for each in came] == [True] * drain_tasks
    assert await queue.shutdown(None) == []
    assert check_settled(queue).failed == drain_tasks


@pytest.mark.real_time
async def test_nor_does_a_thread() -> None:
    """It cannot be stopped at its timeout, and waits for room in its own queue then."""
    came: list[object] = []
    go = threading.Event()

    def go_on(batch: list[int]) -> None:
        if batch[0] > 0:
            return
        go.wait(LIMIT)
        try:
            came.append(sync_queue.produce_many(range(1, 10)))
        except WouldDeadlock as error:
            came.append(error)

    config = BatchQueueConfig[int](
        consumer=in_thread(go_on),
        max_batch=1,
        buffer_size=2,
        handler_timeout=0.05,
        on_error=lambda _batch, _error: None,
    )
    async with asyncio.timeout(LIMIT), BatchQueue[int]("q", config) as queue:
        sync_queue = SyncBatchQueue(queue)
        await queue.produce_many([0, 1])
        await until(lambda: queue.stats().failed == 1)
        go.set()
        await until(lambda: came)
    assert isinstance(came[0], WouldDeadlock)


@pytest.mark.asyncio(loop_factories=["virtual"])
async def test_it_waits_for_no_partition_of_another_drain_task_that_waits_for_it() -> (
    None
):
    """That drain task is kept out of the handler until the call has ended."""
    came: list[object] = []

    async def go_on(batch: list[int]) -> None:
        if batch[0] > 0:
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10.0)
        await asyncio.sleep(3.0)
        try:
            await queue.produce_many(range(1, 21, 2))
        except WouldDeadlock as error:
            came.append(error)

    config = BatchQueueConfig[int](
        max_batch=1,
        buffer_size=2,
        handler_timeout=1.0,
        on_error=lambda _batch, _error: None,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, count: item % count,
    )
    async with BatchQueue[int]("q", config) as queue:
        queue.add_handler(int, go_on)
        await queue.produce(0)
        await asyncio.sleep(100.0)
        assert [type(each) for each in came] == [WouldDeadlock]
