"""C3: a handler that waits for its own drain task gets `WouldDeadlock`, at once.

Each test runs under a time limit: where the promise is broken, it would wait for ever.
"""

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
    WouldDeadlock,
    in_thread,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled

PATIENCE = 30.0
QUICK = IdleBackoff(0.001, 0.002)

Body = Callable[[BatchQueue[Any]], Awaitable[object]]


@asynccontextmanager
async def full_inside_of_its_handler(
    body: Body, *, handler_timeout: float | None = None
) -> AsyncIterator[tuple[BatchQueue[Any], "asyncio.Future[object]"]]:
    """Run `body` in a handler whose own partition is full; its outcome is yielded."""
    outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def consume(_: list[int]) -> None:
        if outcome.done():
            return
        while queue.produce_nowait(0):
            pass
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await body(queue)
        except (WouldDeadlock, TimeoutError) as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(answer)

    config = BatchQueueConfig[Any](buffer_size=2, handler_timeout=handler_timeout)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        yield queue, outcome
        await asyncio.wait({outcome}, timeout=2 * PATIENCE)
    check_settled(queue)


async def produce(queue: BatchQueue[Any]) -> object:
    return await queue.produce(1)


async def produce_many(queue: BatchQueue[Any]) -> object:
    return await queue.produce_many([1, 2, 3])


async def produce_in_a_task(queue: BatchQueue[Any]) -> object:
    return await asyncio.create_task(queue.produce(1))


async def produce_in_a_task_of_a_task(queue: BatchQueue[Any]) -> object:
    return await asyncio.create_task(produce_in_a_task(queue))


async def produce_by_gather(queue: BatchQueue[Any]) -> object:
    return await asyncio.gather(queue.produce(1), queue.produce(2))


async def produce_in_a_callback(queue: BatchQueue[Any]) -> object:
    """The loop's callbacks run in the context of who asked for them."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[bool]] = []
    loop.call_soon(lambda: tasks.append(loop.create_task(queue.produce(1))))
    await asyncio.sleep(0)
    return await tasks[0]


async def produce_in_a_copied_context(queue: BatchQueue[Any]) -> object:
    context = contextvars.copy_context()
    return await asyncio.create_task(queue.produce(1), context=context)


WAYS = [
    produce,
    produce_many,
    produce_in_a_task,
    produce_in_a_task_of_a_task,
    produce_by_gather,
    produce_in_a_callback,
    produce_in_a_copied_context,
]


@every_loop
@pytest.mark.parametrize("body", WAYS)
@pytest.mark.parametrize("handler_timeout", [None, 3.0])
async def test_waiting_for_ones_own_drain_task_raises_at_once(
    body: Body, handler_timeout: float | None
) -> None:
    """Also where a `handler_timeout` runs the handler in a task of its own."""
    async with full_inside_of_its_handler(body, handler_timeout=handler_timeout) as (
        queue,
        outcome,
    ):
        await turns()
        assert outcome.done(), "it waits"
        with pytest.raises(WouldDeadlock, match="'q'"):
            outcome.result()
        await queue.flush()
        # Nobody stays behind in the line.
        assert queue.produce_nowait(5)
        assert queue.produce_nowait(6)


@every_loop
async def test_a_refused_produce_accepts_nothing() -> None:
    async with full_inside_of_its_handler(produce) as (queue, outcome):
        with pytest.raises(WouldDeadlock):
            await outcome
        await queue.flush()
    assert queue.stats().accepted == 3


@every_loop
async def test_what_a_refused_produce_many_had_placed_stays() -> None:
    received: list[int] = []
    errors: list[WouldDeadlock] = []

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        if batch == [0]:
            try:
                await queue.produce_many([1, 2, 3, 4])
            except WouldDeadlock as error:
                errors.append(error)

    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=2)) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await until(lambda: errors)
    assert len(errors) == 1
    assert received == [0, 1, 2]


@every_loop
async def test_an_unexpected_refusal_fails_the_batch_alone() -> None:
    failed: list[tuple[list[int], BaseException]] = []

    async def consume(batch: list[int]) -> None:
        if 0 in batch:
            await queue.produce_many([1, 2, 3])

    config = BatchQueueConfig[int](
        buffer_size=2, on_error=lambda batch, error: failed.append((batch, error))
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await until(lambda: failed)
    ((batch, error),) = failed
    assert batch == [0]
    assert isinstance(error, WouldDeadlock)
    assert check_settled(queue).handled == 2


@every_loop
async def test_with_room_a_handler_may_produce_into_its_own_partition() -> None:
    received: list[int] = []

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        if batch[-1] < 10:
            assert await queue.produce(batch[-1] + 1)

    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await until(lambda: len(received) == 11)
    assert received == list(range(11))


@every_loop
@pytest.mark.parametrize(
    "when_full, accepted", [(WhenFull.DROP_NEWEST, 1), (WhenFull.DROP_OLDEST, 3)]
)
async def test_who_never_waits_is_never_refused(
    when_full: WhenFull, accepted: int
) -> None:
    answers: list[int] = []

    async def consume(batch: list[int]) -> None:
        if 0 in batch:
            answers.append(await queue.produce_many([1, 2]))
            answers.append(await queue.produce(3))

    config = BatchQueueConfig[int](buffer_size=1, when_full=when_full)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await until(lambda: len(answers) == 2)
    assert sum(answers) == accepted


@every_loop
async def test_a_partition_of_another_drain_task_may_be_waited_for() -> None:
    """That one goes on, so it ends: no false alarm."""
    other = RecordingHandler[str](delay=0.01)

    async def consume(_: list[int]) -> None:
        assert await queue.produce_many("abcdefg") == 7

    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        buffer_size=1,
    )
    async with asyncio.timeout(PATIENCE), BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        queue.add_handler(str, other)
        assert await queue.produce(0)
        await queue.flush()
    assert other.items == list("abcdefg")


@every_loop
async def test_another_partition_of_the_same_drain_task_is_refused() -> None:
    outcomes: list[type[BaseException]] = []

    async def consume(_: list[int]) -> None:
        try:
            await queue.produce_many(["a", "b"])
        except WouldDeadlock as error:
            outcomes.append(type(error))

    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(2), buffer_size=1)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        queue.add_handler(str, RecordingHandler())
        assert await queue.produce(0)
        await queue.flush()
    assert outcomes == [WouldDeadlock]


@every_loop
async def test_another_queue_may_be_waited_for() -> None:
    """Chains of queues are the rule: L1's handler waits for L2."""
    last = RecordingHandler[int](delay=0.01)
    async with (
        asyncio.timeout(PATIENCE),
        BatchQueue("second", BatchQueueConfig[int](buffer_size=1)) as second,
        BatchQueue("first", BatchQueueConfig[int](buffer_size=10)) as first,
    ):
        second.add_handler(int, last)

        async def forward(batch: list[int]) -> None:
            assert await second.produce_many(batch) == len(batch)

        first.add_handler(int, forward)
        assert await first.produce_many(range(10)) == 10
        await first.flush()
        await second.flush()
    assert last.items == list(range(10))


@every_loop
async def test_a_second_queues_handler_may_wait_for_the_first() -> None:
    """The context of the first's handler must not leak into the second's tasks."""
    received: list[int] = []
    holder: list[BatchQueue[str]] = []

    async def back(batch: list[str]) -> None:
        # Not a part of the call that started this queue, long over by now.
        for item in batch:
            assert await first.produce(len(item))

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        if not holder:
            second = BatchQueue[str]("second")
            await second.start()
            second.add_handler(str, back)
            holder.append(second)

    async with asyncio.timeout(PATIENCE):
        async with BatchQueue("first", BatchQueueConfig[int](buffer_size=1)) as first:
            first.add_handler(int, consume)
            assert await first.produce(0)
            await until(lambda: holder)
            assert await holder[0].produce_many(["a", "bb", "ccc"]) == 3
            await holder[0].shutdown()
    assert received == [0, 1, 2, 3]


@every_loop
async def test_a_task_that_outlives_its_handler_may_wait() -> None:
    left: list[asyncio.Task[bool]] = []
    received: list[int] = []
    go, gate = asyncio.Event(), asyncio.Event()

    async def later() -> bool:
        await go.wait()
        return await queue.produce(3)

    async def consume(batch: list[int]) -> None:
        received.extend(batch)
        if batch == [0]:
            left.append(asyncio.create_task(later()))
        if batch == [1]:
            await gate.wait()

    async with asyncio.timeout(PATIENCE):
        async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
            queue.add_handler(int, consume)
            assert await queue.produce(0)
            await queue.flush()
            assert await queue.produce(1)
            await until(lambda: received == [0, 1])
            assert await queue.produce(2)
            go.set()
            await turns()
            assert not left[0].done(), "it waits, and was not refused"
            gate.set()
            assert await left[0], "the handler that started it has returned"
    assert received == [0, 1, 2, 3]


@every_loop
async def test_on_error_is_refused_like_the_handler() -> None:
    outcomes: list[str] = []

    async def on_error(_: list[int], __: BaseException) -> None:
        while queue.produce_nowait(1):
            pass
        try:
            async with asyncio.timeout(PATIENCE):
                await queue.produce(2)
        except (WouldDeadlock, TimeoutError) as error:
            outcomes.append(type(error).__name__)

    def consume(batch: list[int]) -> None:
        if 0 in batch:
            raise ValueError

    config = BatchQueueConfig[int](buffer_size=2, on_error=on_error)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await until(lambda: outcomes, patience=2 * PATIENCE)
    assert outcomes == ["WouldDeadlock"]


class Hooked:
    """A handler whose hooks produce more than its partition holds."""

    def __init__(self, hook: str) -> None:
        self.outcomes: list[str] = []
        setattr(self, hook, self._produce)

    def consume(self, batch: list[Any]) -> None: ...

    async def _produce(self) -> None:
        if self.outcomes:
            return
        self.outcomes.append("entered")
        try:
            async with asyncio.timeout(PATIENCE):
                await self.queue.produce_many([1, 2, 3])
        except (WouldDeadlock, TimeoutError) as error:
            self.outcomes.append(type(error).__name__)

    queue: BatchQueue[Any]


@every_loop
@pytest.mark.parametrize("hook", ["on_idle", "on_flush"])
async def test_on_idle_and_on_flush_are_refused_like_consume(hook: str) -> None:
    handler = Hooked(hook)
    config = BatchQueueConfig[Any](buffer_size=2, idle=QUICK)
    async with BatchQueue("q", config) as queue:
        handler.queue = queue
        queue.add_handler(int, handler)
        await queue.flush(timeout=2 * PATIENCE)
        await until(lambda: len(handler.outcomes) == 2, patience=2 * PATIENCE)
    assert handler.outcomes == ["entered", "WouldDeadlock"]


@every_loop
async def test_on_close_of_a_removed_handler_is_refused_like_consume() -> None:
    """The queue runs on, so its items could come in; its drain task waits for it."""
    handler = Hooked("on_close")
    config = BatchQueueConfig[Any](buffer_size=2, idle=QUICK)
    async with BatchQueue("q", config) as queue:
        handler.queue = queue
        queue.add_handler(str, handler)
        queue.add_handler(int, RecordingHandler())
        assert queue.remove_handler(str)
        await until(lambda: len(handler.outcomes) == 2, patience=2 * PATIENCE)
    assert handler.outcomes == ["entered", "WouldDeadlock"]


@every_loop
async def test_on_close_of_a_removed_handler_may_flush() -> None:
    """From a handler, `flush` leaves out what its own drain task has to do."""
    outcomes: list[str] = []

    class Flushing:
        def consume(self, batch: list[Any]) -> None: ...

        async def on_close(self) -> None:
            assert await queue.produce(1)
            try:
                await queue.flush(timeout=PATIENCE)
            except TimeoutError:
                outcomes.append("TimeoutError")
            else:
                outcomes.append("done")

    async with BatchQueue("q", BatchQueueConfig[Any](idle=QUICK)) as queue:
        queue.add_handler(str, Flushing())
        queue.add_handler(int, RecordingHandler())
        assert queue.remove_handler(str)
        await until(lambda: outcomes, patience=2 * PATIENCE)
    assert outcomes == ["done"]


@every_loop
async def test_who_keeps_a_partitions_owner_out_of_the_handler_is_refused() -> None:
    """The other drain task waits to enter the same handler, so it cannot take.

    Only this handler's return lets it go on: waiting for it never ends. Beyond the
    letter of C3 ("its own drain task"), but the same wait for ever.
    """
    entered, go = asyncio.Event(), asyncio.Event()
    outcomes: list[str] = []

    class Consumer:
        async def consume(self, batch: list[int]) -> None:
            await asyncio.sleep(0)

        async def on_idle(self) -> None:
            if entered.is_set():
                return
            entered.set()
            await go.wait()
            try:
                async with asyncio.timeout(PATIENCE):
                    assert await queue.produce(3)
            except (WouldDeadlock, TimeoutError) as error:
                outcomes.append(type(error).__name__)
            else:
                outcomes.append("accepted")

    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda _, __: 1,
        consumer=Consumer(),
        buffer_size=1,
        idle=QUICK,
    )
    async with BatchQueue("q", config) as queue:
        await entered.wait()
        assert await queue.produce(1)
        # Drain task 1 has taken it, and stands at the door; fill up behind it.
        await until(lambda: queue.stats().in_flight == 1)
        assert await queue.produce(2)
        go.set()
        await until(lambda: outcomes, patience=2 * PATIENCE)
    assert outcomes in (["WouldDeadlock"], ["accepted"])


@every_loop
async def test_a_base_is_refused_room_that_only_its_own_return_makes() -> None:
    """The same with `consume`: the subclass's items wait for the base's handler."""

    class Base: ...

    class Sub(Base): ...

    entered, go = asyncio.Event(), asyncio.Event()
    outcomes: list[str] = []

    async def consume(_: list[Base]) -> None:
        if entered.is_set():
            return
        entered.set()
        await go.wait()
        try:
            async with asyncio.timeout(PATIENCE):
                assert await queue.produce(Sub())
        except (WouldDeadlock, TimeoutError) as error:
            outcomes.append(type(error).__name__)
        else:
            outcomes.append("accepted")

    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        buffer_size=1,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(Base, consume)
        queue.add_handler(Sub, RecordingHandler())
        queue.remove_handler(Sub)
        assert await queue.produce(Base())
        await entered.wait()
        assert await queue.produce(Sub())
        # Drain task 1 has taken it, and stands at the door; fill up behind it.
        await until(lambda: queue.stats().in_flight == 2)
        assert await queue.produce(Sub())
        go.set()
        await until(lambda: outcomes, patience=2 * PATIENCE)
    assert outcomes in (["WouldDeadlock"], ["accepted"])


@every_loop
async def test_reserved_slots_of_others_are_no_reason_to_wait_for_ever() -> None:
    """The handler comes last in a line that its own drain task must serve."""
    outcomes: list[str] = []

    async def consume(batch: list[int]) -> None:
        if batch == [0]:
            await gate.wait()
        elif not outcomes:
            # The take freed one slot, and it is reserved for the first waiter.
            try:
                async with asyncio.timeout(PATIENCE):
                    await queue.produce(9)
            except (WouldDeadlock, TimeoutError) as error:
                outcomes.append(type(error).__name__)

    gate = asyncio.Event()
    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await turns()
        assert queue.produce_nowait(1)
        waiters = [asyncio.create_task(queue.produce(item)) for item in (2, 3)]
        await turns()
        gate.set()
        assert all(await asyncio.gather(*waiters))
    assert outcomes == ["WouldDeadlock"]


def _in_a_thread(run: Callable[..., Awaitable[object]]) -> Body:
    async def body(queue: BatchQueue[Any]) -> object:
        bridge = SyncBatchQueue(queue)
        return await run(functools.partial(bridge.produce, 1, timeout=PATIENCE))

    return body


@pytest.mark.real_time
async def test_a_thread_that_the_handler_started_is_refused() -> None:
    async with full_inside_of_its_handler(_in_a_thread(asyncio.to_thread)) as (
        _,
        outcome,
    ):
        with pytest.raises(WouldDeadlock):
            await outcome


@pytest.mark.real_time
async def test_a_thread_that_asks_the_loop_is_refused() -> None:
    """`run_coroutine_threadsafe` carries the thread's context over to the loop."""

    async def body(queue: BatchQueue[Any]) -> object:
        loop = asyncio.get_running_loop()

        def call() -> bool:
            future = asyncio.run_coroutine_threadsafe(queue.produce(1), loop)
            return future.result(PATIENCE)

        return await asyncio.to_thread(call)

    async with full_inside_of_its_handler(body) as (_, outcome):
        with pytest.raises(WouldDeadlock):
            await outcome


@pytest.mark.real_time
async def test_a_handler_in_a_thread_is_refused() -> None:
    outcomes: list[str] = []

    def consume(batch: list[int]) -> None:
        if 0 not in batch:
            return
        try:
            bridge.produce_many([1, 2, 3], timeout=PATIENCE)
        except WouldDeadlock:
            outcomes.append("WouldDeadlock")
        else:
            outcomes.append("waited")

    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=2)) as queue:
        bridge = SyncBatchQueue(queue)
        queue.add_handler(int, in_thread(consume))
        assert await queue.produce(0)
        await until(lambda: outcomes, patience=2 * PATIENCE)
    assert outcomes == ["WouldDeadlock"]
    assert check_settled(queue).handled == 3


@pytest.mark.real_time
async def test_a_thread_that_outlives_its_handler_may_wait() -> None:
    go = threading.Event()
    answers: list[bool] = []
    gate = asyncio.Event()
    jobs: list[asyncio.Task[None]] = []

    def later(bridge: SyncBatchQueue[int]) -> None:
        go.wait(PATIENCE)
        answers.append(bridge.produce(3, timeout=PATIENCE))

    async def consume(batch: list[int]) -> None:
        if batch == [0]:
            bridge = SyncBatchQueue(queue)
            jobs.append(asyncio.create_task(asyncio.to_thread(later, bridge)))
        if batch == [1]:
            await gate.wait()

    async with BatchQueue("q", BatchQueueConfig[int](buffer_size=1)) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await queue.flush()
        assert await queue.produce(1)
        await until(lambda: queue.stats().in_flight == 1)
        assert await queue.produce(2)
        go.set()
        await asyncio.sleep(0.05)
        gate.set()
        await jobs[0]
    assert answers == [True]
