"""C3 in all its cycles: one who waits gets `WouldDeadlock`, and the others go on.

In virtual time: where nobody gets it, the test fails as `Deadlock`, or by its limit.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
    WouldDeadlock,
)
from tests.engine.until import turns, until
from tests.support.oracle import check_settled

LIMIT = 100.0

Act = Callable[[BatchQueue[Any]], Awaitable[object]]


async def produce(queue: BatchQueue[Any]) -> object:
    return await queue.produce("more")


async def produce_many(queue: BatchQueue[Any]) -> object:
    return await queue.produce_many(["more"] * 5)


async def produce_by_tasks(queue: BatchQueue[Any]) -> object:
    async def produce_later() -> None:
        # An eager one that is refused at once would close the group to the others.
        await asyncio.sleep(0)
        await queue.produce("more")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(produce_later())
    return None


async def flush(queue: BatchQueue[Any]) -> object:
    await queue.flush()
    return None


async def shut_down(queue: BatchQueue[Any]) -> object:
    return await queue.shutdown(None)


ACTS = [produce, produce_many, produce_by_tasks, flush, shut_down]


def fill(queue: BatchQueue[Any], item: object = "filling") -> None:
    while queue.produce_nowait(item):
        pass


class Meeting:
    """Handlers that begin to wait only when all of them run, one after the other."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[str] = []
        self._count = count
        self._inside = 0
        self._all_inside = asyncio.Event()

    def handler(
        self, number: int, act: Act, target: Callable[[], BatchQueue[Any]]
    ) -> Callable[[list[Any]], Awaitable[None]]:
        async def consume(batch: list[Any]) -> None:
            if "go" not in batch:
                return
            self._inside += 1
            if self._inside == self._count:
                self._all_inside.set()
            await self._all_inside.wait()
            # So that it is known who comes last.
            await turns(10 * number + 1)
            fill(target())
            try:
                await act(target())
            except* WouldDeadlock:
                self.outcomes.append(f"{number} refused")
            else:
                self.outcomes.append(f"{number} went on")

        return consume


def small(**settings: Any) -> BatchQueueConfig[Any]:  # noqa: ANN401
    return BatchQueueConfig[Any](**{"buffer_size": 2, **settings})


class TestBetweenQueues:
    """Each handler waits for the next queue, the last one for the first."""

    @pytest.mark.parametrize("length", [2, 3])
    @pytest.mark.parametrize("last", ACTS)
    @pytest.mark.parametrize("first", ACTS)
    async def test_the_last_one_is_refused(
        self, first: Act, last: Act, length: int
    ) -> None:
        meeting = Meeting(length)
        queues: list[BatchQueue[Any]] = []
        async with asyncio.timeout(LIMIT), BatchQueueManager() as manager:
            for number in range(length):
                act = last if number == length - 1 else first
                following = (number + 1) % length
                handler = meeting.handler(
                    number, act, partial(queues.__getitem__, following)
                )
                queues.append(
                    await manager.create(f"q{number}", small(consumer=handler))
                )
            for queue in queues:
                assert await queue.produce("go")
            await until(lambda: len(meeting.outcomes) == length)
            assert meeting.outcomes[0] == f"{length - 1} refused"
            assert all(each.endswith("went on") for each in meeting.outcomes[1:])
        for queue in queues:
            check_settled(queue)

    async def test_without_the_way_back_nobody_is_refused(self) -> None:
        """The same, but that the last handler just takes its time."""
        meeting = Meeting(2)
        queues: list[BatchQueue[Any]] = []

        async def sleep(_: list[Any]) -> None:
            await asyncio.sleep(0.1)

        async with asyncio.timeout(LIMIT), BatchQueueManager() as manager:
            for number in range(2):
                handler = meeting.handler(
                    number, produce_many, partial(queues.__getitem__, number + 1)
                )
                queues.append(
                    await manager.create(f"q{number}", small(consumer=handler))
                )
            queues.append(await manager.create("last", small(consumer=sleep)))
            for queue in queues[:-1]:
                assert await queue.produce("go")
            await until(lambda: len(meeting.outcomes) == 2)
        assert sorted(meeting.outcomes) == ["0 went on", "1 went on"]

    async def test_an_error_handler_is_part_of_it(self) -> None:
        """`on_error` of A produces into B, and the one of B into A: dead letters."""
        meeting = Meeting(2)
        queues: list[BatchQueue[Any]] = []

        def fails(batch: list[Any]) -> None:
            if "go" in batch:
                raise ValueError

        async def letters(
            consume: Callable[[list[Any]], Awaitable[None]],
            batch: list[Any],
            _: BaseException,
        ) -> None:
            await consume(batch)

        async with asyncio.timeout(LIMIT), BatchQueueManager() as manager:
            for number in range(2):
                consume = meeting.handler(
                    number, produce, partial(queues.__getitem__, 1 - number)
                )
                config = small(
                    consumer=fails,
                    on_error=partial(letters, consume),
                )
                queues.append(await manager.create(f"q{number}", config))
            for queue in queues:
                assert await queue.produce("go")
            await until(lambda: len(meeting.outcomes) == 2)
        assert meeting.outcomes == ["1 refused", "0 went on"]

    async def test_on_flush_is_part_of_it(self) -> None:
        """A handler of A flushes B, whose `on_flush` feeds A."""
        outcomes: list[str] = []

        class Flushed:
            def consume(self, batch: list[Any]) -> None: ...

            async def on_flush(self) -> None:
                # Whoever comes last is refused: with eager tasks that would be `flush`.
                await asyncio.sleep(0)
                fill(one)
                try:
                    await one.produce("back")
                except WouldDeadlock:
                    outcomes.append("refused")

        async def flushes(batch: list[Any]) -> None:
            if "go" in batch:
                await other.flush()
                outcomes.append("flushed")

        async with asyncio.timeout(LIMIT):
            async with (
                BatchQueue("one", small(consumer=flushes)) as one,
                BatchQueue("other", small(consumer=Flushed())) as other,
            ):
                assert await one.produce("go")
                await until(lambda: "flushed" in outcomes)
        assert outcomes == ["refused", "flushed"]

    async def test_on_close_is_part_of_it(self) -> None:
        """A handler of A shuts B down, whose `on_close` feeds A."""
        outcomes: list[str] = []

        class Closed:
            def consume(self, batch: list[Any]) -> None: ...

            async def on_close(self) -> None:
                fill(one)
                try:
                    await one.produce("last words")
                except WouldDeadlock:
                    outcomes.append("refused")

        async def shuts_down(batch: list[Any]) -> None:
            if "go" in batch:
                await other.shutdown(None)
                outcomes.append("shut down")

        async with asyncio.timeout(LIMIT):
            async with (
                BatchQueue("one", small(consumer=shuts_down)) as one,
                BatchQueue("other", small(consumer=Closed())) as other,
            ):
                assert await one.produce("go")
                await until(lambda: "shut down" in outcomes)
        assert outcomes == ["refused", "shut down"]


class Number(int): ...


class Text(int): ...


def two_drain_tasks(**settings: Any) -> BatchQueueConfig[Any]:  # noqa: ANN401
    return BatchQueueConfig[Any](
        **{
            "drain_tasks": DrainTaskPolicy.fixed(2),
            "partitions": PartitionPolicy.fixed(2),
            "buffer_size": 1,
            "idle": IdleBackoff(0.001, 0.002),
            **settings,
        }
    )


class TestWithinOneQueue:
    """Two drain tasks of one queue."""

    async def test_two_handlers_feed_each_others_full_partitions(self) -> None:
        outcomes: list[str] = []

        def feeds(other: type, name: str, start: int) -> Any:  # noqa: ANN401
            began: list[int] = []

            async def consume(batch: list[Any]) -> None:
                if began:
                    return
                began.append(1)
                await turns(start)
                try:
                    for _ in range(3):
                        await queue.produce(other(1))
                except WouldDeadlock:
                    outcomes.append(f"{name} refused")
                else:
                    outcomes.append(f"{name} went on")

            return consume

        async with asyncio.timeout(LIMIT):
            async with BatchQueue("q", two_drain_tasks()) as queue:
                queue.add_handler(Number, feeds(Text, "first", 5))
                queue.add_handler(Text, feeds(Number, "second", 25))
                assert queue.produce_nowait(Number(1))
                assert queue.produce_nowait(Text(1))
                await until(lambda: len(outcomes) >= 2)
        assert outcomes[:2] == ["second refused", "first went on"]
        check_settled(queue)

    @pytest.mark.parametrize("is_first", [True, False])
    async def test_one_feeds_and_one_flushes(self, *, is_first: bool) -> None:
        """From a handler, `flush` leaves out what waits for that handler."""
        outcomes: list[str] = []

        async def feeds(_: list[Any]) -> None:
            await turns(1 if is_first else 30)
            try:
                await queue.produce_many([Text(1)] * 3)
            except WouldDeadlock:
                outcomes.append("refused")
            else:
                outcomes.append("fed")

        async def flushes(_: list[Any]) -> None:
            await turns(30 if is_first else 1)
            await queue.flush()
            outcomes.append("flushed")

        async with asyncio.timeout(LIMIT):
            async with BatchQueue("q", two_drain_tasks()) as queue:
                queue.add_handler(Number, feeds)
                queue.add_handler(Text, flushes)
                assert queue.produce_nowait(Number(1))
                assert queue.produce_nowait(Text(1))
                await until(lambda: len(outcomes) >= 2)
        assert sorted(set(outcomes)) in (["fed", "flushed"], ["flushed", "refused"])

    async def test_who_waits_already_is_refused_when_a_gate_closes_the_cycle(
        self,
    ) -> None:
        """The produce waits first; then its partition's owner comes to the gate."""

        class Base: ...

        class Sub(Base): ...

        outcomes: list[str] = []
        busy, go = asyncio.Event(), asyncio.Event()

        async def consume(batch: list[Any]) -> None:
            if isinstance(batch[0], Sub) or go.is_set():
                return
            await busy.wait()
            try:
                await queue.produce_many([Sub() for _ in range(3)])
            except WouldDeadlock:
                outcomes.append("refused")

        async def other(_: list[Any]) -> None:
            busy.set()
            await go.wait()

        config = two_drain_tasks(partitions=PartitionPolicy.fixed(4))
        async with asyncio.timeout(LIMIT):
            async with BatchQueue("q", config) as queue:
                queue.add_handler(Base, consume)  # partition 0, of drain task 0
                queue.add_handler(Sub, consume)  # partition 1, of drain task 1
                queue.add_handler(bytes, other)
                queue.add_handler(float, other)  # partition 3, of drain task 1
                # Its items go to the base's handler now, which is entered once.
                queue.remove_handler(Sub)
                assert queue.produce_nowait(Base())
                assert queue.produce_nowait(1.0)
                await busy.wait()
                await turns(50)
                assert not outcomes, "the owner is not at the gate yet"
                go.set()
                await until(lambda: outcomes)
        assert outcomes == ["refused"]
        check_settled(queue)

    async def test_a_consumers_on_idle_waits_for_who_comes_to_its_gate(self) -> None:
        outcomes: list[str] = []
        entered = asyncio.Event()

        class Consumer:
            async def consume(self, batch: list[int]) -> None:
                await asyncio.sleep(0)

            async def on_idle(self) -> None:
                if entered.is_set():
                    return
                entered.set()
                try:
                    # The owner takes the first ones, and comes to the gate with them.
                    assert await queue.produce_many([1, 2, 3, 4]) == 4
                except WouldDeadlock:
                    outcomes.append("refused")
                else:
                    outcomes.append("went on")

        config = two_drain_tasks(consumer=Consumer(), selector=lambda _, __: 1)
        async with asyncio.timeout(LIMIT):
            async with BatchQueue("q", config) as queue:
                await until(lambda: outcomes)
        assert outcomes == ["refused"]
        check_settled(queue)

    async def test_different_types_of_one_handler_may_feed_each_other(self) -> None:
        """They may be inside together, so the gate is no reason to wait."""
        outcomes: list[str] = []

        async def consume(batch: list[Any]) -> None:
            if isinstance(batch[0], Number) and batch[0] == 0:
                await queue.produce_many([Text(1)] * 5)
                outcomes.append("went on")

        async with asyncio.timeout(LIMIT):
            async with BatchQueue("q", two_drain_tasks()) as queue:
                queue.add_handler(Number, consume)
                queue.add_handler(Text, consume)
                assert queue.produce_nowait(Number(0))
                await until(lambda: outcomes)
        assert outcomes == ["went on"]

    async def test_a_handoff_that_would_close_a_cycle_is_refused(self) -> None:
        """Drain task 1's handler waits, by way of another queue, for who waits here.

        Were the partition its own, nobody would ever take from it.
        """
        plan: list[int] = [0, 1]
        outcomes: list[str] = []

        class Plan:
            def assign(self, loads: Any, owners: Any, drain_tasks: int) -> list[int]:  # noqa: ANN401
                return list(plan)

        async def numbers(_: list[Any]) -> None:
            await asyncio.sleep(0.1)

        async def texts(_: list[Any]) -> None:
            # It waits for `other`, whose handler waits for room behind the numbers.
            fill(other)
            await other.produce("more")
            outcomes.append("texts went on")

        async def back(batch: list[Any]) -> None:
            if not outcomes and "go" in batch:
                await queue.produce_many([Number(1)] * 3)
                outcomes.append("back went on")

        config = two_drain_tasks(rebalancing=Rebalancing(Plan(), 0.03))
        async with asyncio.timeout(LIMIT):
            async with (
                BatchQueue("other", small(consumer=back)) as other,
                BatchQueue("q", config) as queue,
            ):
                queue.add_handler(Number, numbers)
                queue.add_handler(Text, texts)
                assert queue.produce_nowait(Number(1))
                assert await other.produce("go")
                await turns()
                assert queue.produce_nowait(Text(1))
                plan[:] = [1, 1]
                await until(lambda: len(outcomes) == 2)
        assert outcomes == ["back went on", "texts went on"]


class TestManager:
    """Shutting a manager's queues down from one of its handlers."""

    async def test_a_handler_waits_for_a_shutdown_that_waits_for_it(self) -> None:
        """`shutdown_all` outside, and inside of a handler of a queue that it ends."""
        outcomes: list[str] = []
        closing = asyncio.Event()

        async def consume(_: list[Any]) -> None:
            await closing.wait()
            await turns()
            try:
                await manager.shutdown_all(None)
            except WouldDeadlock:
                outcomes.append("refused")
            else:
                outcomes.append("returned")

        async with asyncio.timeout(LIMIT):
            manager = BatchQueueManager()
            await manager.create("first")
            queue = await manager.create("q", small(consumer=consume))
            assert await queue.produce(1)
            await turns()
            closing.set()
            assert await manager.shutdown_all(None) == {"first": [], "q": []}
        assert len(outcomes) == 1
