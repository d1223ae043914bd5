"""F: what a manager has begun to close it waits for, whoever was cancelled."""

import asyncio
import logging

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from tests.engine.every_loop import every_loop
from tests.engine.observing import live_timers
from tests.engine.until import turns, until
from tests.support.leaks import surviving_tasks
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


async def opened(
    manager: BatchQueueManager,
    name: str,
    handler: RecordingHandler[int],
    told: list[int] | None = None,
) -> BatchQueue[int]:
    """A queue with ten items, which its handler takes one by one."""
    config = BatchQueueConfig[int](
        consumer=handler,
        max_batch=1,
        on_error=None if told is None else lambda batch, _: told.extend(batch),
    )
    queue = await manager.create(name, config)
    await queue.produce_many(range(10))
    return queue


async def cancelled(task: asyncio.Task[object]) -> None:
    await turns()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


class TestAShutdownByNameThatIsCancelled:
    async def test_leaving_the_manager_waits_for_it(self) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        async with BatchQueueManager() as manager:
            queue = await opened(manager, "q", handler)
            await cancelled(asyncio.create_task(manager.shutdown("q")))
            assert manager.get("q") is None
            gate.set()
        assert handler.handled == list(range(10))
        assert check_settled(queue).handled == 10
        assert not surviving_tasks()

    async def test_shutdown_all_waits_for_it_and_returns_its_list(self) -> None:
        manager = BatchQueueManager()
        queue = await opened(manager, "q", RecordingHandler[int](gate=asyncio.Event()))
        await cancelled(asyncio.create_task(manager.shutdown("q", None)))
        assert await manager.shutdown_all(timeout=0.01) == {"q": list(range(10))}
        assert check_settled(queue).returned == 10

    async def test_its_list_is_kept_when_the_end_comes_before_the_next_call(
        self,
    ) -> None:
        manager = BatchQueueManager()
        queue = await opened(manager, "q", RecordingHandler[int](gate=asyncio.Event()))
        await cancelled(asyncio.create_task(manager.shutdown("q", None)))
        manager.shorten_deadline()
        await until(lambda: queue.stats().returned == 10)
        assert await manager.shutdown_all() == {"q": list(range(10))}
        assert await manager.shutdown_all() == {}

    async def test_close_tells_on_error_what_nobody_came_for(self) -> None:
        told: list[int] = []
        async with BatchQueueManager() as manager:
            handler = RecordingHandler[int](gate=asyncio.Event())
            queue = await opened(manager, "q", handler, told)
            await cancelled(asyncio.create_task(manager.shutdown("q", None)))
            manager.shorten_deadline()
            await until(lambda: queue.stats().returned == 10)
            assert told == []
        assert told == list(range(10))

    async def test_a_second_call_waits_for_it(self) -> None:
        manager = BatchQueueManager()
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        await opened(manager, "q", handler)
        await cancelled(asyncio.create_task(manager.shutdown("q")))
        asyncio.get_running_loop().call_later(0.01, gate.set)
        assert await manager.shutdown("q") == []
        assert handler.handled == list(range(10))

    async def test_its_successor_is_another_queue(self) -> None:
        gate = asyncio.Event()
        first, second = RecordingHandler[int](gate=gate), RecordingHandler[int]()
        async with BatchQueueManager() as manager:
            await opened(manager, "q", first)
            await cancelled(asyncio.create_task(manager.shutdown("q")))
            successor = await opened(manager, "q", second)
            assert manager.get("q") is successor
            assert await manager.shutdown("q") == []
            assert second.handled == list(range(10))
            assert first.handled == []
            gate.set()
        assert first.handled == list(range(10))


class TestAShutdownOfAllThatIsCancelled:
    @virtual
    async def test_leaves_no_deadline_behind(self) -> None:
        """A later call, long after it, has all of its own time."""
        manager = BatchQueueManager()
        gate = asyncio.Event()
        handlers = [RecordingHandler[int](gate=gate) for _ in range(3)]
        queues = [
            await opened(manager, f"q{n}", handler)
            for n, handler in enumerate(handlers)
        ]
        await cancelled(asyncio.create_task(manager.shutdown_all(timeout=1.0)))
        await asyncio.sleep(10.0)
        asyncio.get_running_loop().call_later(5.0, gate.set)
        assert not any((await manager.shutdown_all(timeout=20.0)).values())
        assert [queue.stats().handled for queue in queues] == [10, 10, 10]
        assert live_timers() == []

    async def test_goes_on_in_the_background(self) -> None:
        manager = BatchQueueManager()
        gate = asyncio.Event()
        queues = [
            await opened(manager, name, RecordingHandler[int](gate=gate))
            for name in ("a", "b")
        ]
        await cancelled(asyncio.create_task(manager.shutdown_all()))
        gate.set()
        await until(lambda: not surviving_tasks())
        assert [queue.stats().handled for queue in queues] == [10, 10]
        assert await manager.shutdown_all() == {}

    async def test_lists_that_nobody_came_for_are_said_and_kept(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        manager = BatchQueueManager()
        gate = asyncio.Event()
        for name in ("a", "b"):
            await opened(manager, name, RecordingHandler[int](gate=gate))
        await cancelled(asyncio.create_task(manager.shutdown_all()))
        manager.shorten_deadline()
        await until(lambda: len(surviving_tasks()) == 0)
        said = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert any("10 items of 'a'" in each for each in said)
        assert any("10 items of 'b'" in each for each in said)
        assert await manager.shutdown_all() == {
            "a": list(range(10)),
            "b": list(range(10)),
        }

    async def test_at_any_tick_nothing_is_lost(self) -> None:
        for tick in range(40):
            handlers = [RecordingHandler[int]() for _ in range(2)]
            manager = BatchQueueManager()
            for n, handler in enumerate(handlers):
                await opened(manager, f"q{n}", handler)
            closing = asyncio.create_task(manager.shutdown_all())
            await turns(tick)
            closing.cancel()
            await asyncio.wait({closing})
            async with asyncio.timeout(30.0):
                await manager.close()
            assert [handler.handled for handler in handlers] == [[*range(10)]] * 2
            assert not surviving_tasks()


class TestFromAHandler:
    @pytest.mark.parametrize("verb", ["shutdown_all", "close"])
    async def test_it_begins_the_closing_and_returns_at_once(self, verb: str) -> None:
        manager = BatchQueueManager()
        answers: list[object] = []

        async def consume(batch: list[int]) -> None:
            answers.append(await getattr(manager, verb)(None))
            # Its own queue has not ended: that waits for this very call.
            assert surviving_tasks()

        other = await opened(manager, "other", RecordingHandler[int](delay=0.001))
        queue = await manager.create("q", BatchQueueConfig[int](consumer=consume))
        await queue.produce(1)
        async with asyncio.timeout(30.0):
            await until(lambda: answers and not surviving_tasks())
        assert answers == [{} if verb == "shutdown_all" else None]
        assert other.stats().handled == 10
        assert check_settled(queue).handled == 1

    @pytest.mark.parametrize("in_main", ["shutdown_all", "close"])
    @pytest.mark.parametrize("in_handler", ["shutdown_all", "close"])
    async def test_it_and_main_do_not_wait_for_each_other(
        self, in_main: str, in_handler: str
    ) -> None:
        manager = BatchQueueManager()
        entered = asyncio.Event()

        async def consume(batch: list[int]) -> None:
            entered.set()
            await turns()
            await getattr(manager, in_handler)(None)

        queues = [
            await manager.create(name, BatchQueueConfig[int](consumer=consume))
            for name in ("a", "b")
        ]
        for queue in queues:
            await queue.produce(1)
        await entered.wait()
        async with asyncio.timeout(30.0):
            await getattr(manager, in_main)(None)
        assert [queue.stats().handled for queue in queues] == [1, 1]

    @virtual
    async def test_its_deadline_holds(self) -> None:
        manager = BatchQueueManager()
        told: list[int] = []

        async def consume(batch: list[int]) -> None:
            await manager.close(2.0)
            await asyncio.sleep(1000.0)

        config = BatchQueueConfig[int](
            consumer=consume, on_error=lambda batch, _: told.extend(batch)
        )
        queue = await manager.create("q", config)
        await queue.produce(1)
        await until(lambda: told == [1])
        assert asyncio.get_running_loop().time() < 2.5

    async def test_another_managers_handler_waits(self) -> None:
        async with BatchQueueManager() as outer:
            inner = BatchQueueManager()
            handler = RecordingHandler[int](delay=0.001)
            await opened(inner, "q", handler)
            seen: list[int] = []

            async def consume(batch: list[int]) -> None:
                assert await inner.shutdown_all() == {"q": []}
                seen.extend(handler.handled)

            queue = await outer.create("q", BatchQueueConfig[int](consumer=consume))
            await queue.produce(1)
        assert seen == list(range(10))


async def test_of_two_that_close_one_gets_the_lists() -> None:
    manager = BatchQueueManager()
    gate = asyncio.Event()
    for name in ("a", "b"):
        await opened(manager, name, RecordingHandler[int](gate=gate))
    one, two = await asyncio.gather(
        manager.shutdown_all(timeout=0.01), manager.shutdown_all(timeout=5.0)
    )
    assert sorted(map(len, (one, two))) == [0, 2]


async def test_close_beside_shutdown_all_loses_nothing() -> None:
    for first_is_close in (True, False):
        manager = BatchQueueManager()
        told: list[int] = []
        for name in ("a", "b"):
            handler = RecordingHandler[int](gate=asyncio.Event())
            await opened(manager, name, handler, told)
        calls = [manager.close(0.01), manager.shutdown_all(0.01)]
        if not first_is_close:
            calls.reverse()
        answers = await asyncio.gather(*calls)
        lists = [each for each in answers if each]
        left = [item for each in lists for items in each.values() for item in items]
        assert sorted(told + left) == sorted([*range(10)] * 2)


async def test_the_old_name_of_shorten_deadline_warns_at_its_call() -> None:
    manager = BatchQueueManager()
    with pytest.warns(DeprecationWarning, match="hurry is shorten_deadline") as caught:
        manager.hurry(1.0)  # type: ignore[deprecated]
    assert caught[0].filename == __file__
    # By which what looks into objects, as an editor does, knows it.
    old = vars(BatchQueueManager)["hurry"]
    assert "shorten_deadline" in old.__deprecated__


async def test_hurry_with_nothing_under_way_leaves_nothing_behind() -> None:
    manager = BatchQueueManager()
    handler = RecordingHandler[int](delay=0.001)
    await opened(manager, "q", handler)
    manager.shorten_deadline()
    assert await manager.shutdown_all() == {"q": []}
    assert handler.handled == list(range(10))


async def test_get_or_create_while_the_former_closes_makes_a_new_one() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    async with BatchQueueManager() as manager:
        former = await opened(manager, "q", handler)
        closing = asyncio.create_task(manager.shutdown("q"))
        await turns()
        queue = await manager.get_or_create("q")
        assert queue is not former
        assert queue.is_running
        gate.set()
        assert await closing == []
        assert manager.get("q") is queue


async def test_a_queue_that_its_user_shuts_down_is_waited_for() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    async with BatchQueueManager() as manager:
        queue = await opened(manager, "q", handler)
        await cancelled(asyncio.create_task(queue.shutdown()))
        gate.set()
    assert handler.handled == list(range(10))


class TestAProgramThatCreatesItsQueueForEachItem:
    """Its manager's end is due at the deadline, though one queue always comes."""

    @staticmethod
    async def feed(manager: BatchQueueManager, handler: RecordingHandler[int]) -> None:
        while True:
            config = BatchQueueConfig[int](consumer=handler)
            queue = await manager.get_or_create("q", config)
            await queue.produce(1)
            await asyncio.sleep(0.0001)

    @pytest.mark.parametrize("leaves", [True, False])
    async def test_all_ends_at_the_deadline(self, *, leaves: bool) -> None:
        manager = BatchQueueManager(shutdown_timeout=0.1)
        handler = RecordingHandler[int](delay=0.001)
        feeding = asyncio.create_task(self.feed(manager, handler))
        await until(lambda: bool(handler.handled))
        async with asyncio.timeout(10):
            await (manager.close() if leaves else manager.shutdown_all(0.1))
        feeding.cancel()
        async with asyncio.timeout(10):
            await manager.shutdown_all()
        assert manager.queues == ()

    @virtual
    async def test_who_comes_after_the_deadline_has_the_later_ones_ended(self) -> None:
        manager = BatchQueueManager()

        async def takes_its_time(*_: object) -> None:
            await asyncio.sleep(0.5)

        stuck = RecordingHandler[int](gate=asyncio.Event())
        config = BatchQueueConfig[int](consumer=stuck, on_error=takes_its_time)
        first = await manager.create("first", config)
        await first.produce(1)
        closing = asyncio.create_task(manager.close())
        await turns()
        manager.shorten_deadline()
        await asyncio.sleep(0.2)
        later = await manager.create("later", BatchQueueConfig(consumer=stuck))
        await later.produce(2)
        await manager.shutdown_all(1.0)
        assert check_settled(later).returned == 1
        await closing
