"""F: the manager finds queues by name, and closes them in order."""

import asyncio
import logging
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueManager,
    ConfigConflict,
    DuplicateQueue,
    IdleBackoff,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import live_timers
from tests.engine.until import turns
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])

ANY = BatchQueueConfig[Any]()


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING
    ]


async def test_create_starts_the_queue_and_get_finds_it() -> None:
    async with BatchQueueManager() as manager:
        queue = await manager.create("q", BatchQueueConfig[int]())
        assert queue.is_running
        assert manager.get("q") is queue
        assert manager.get("other") is None


async def test_leaving_it_closes_and_forgets_them() -> None:
    async with BatchQueueManager() as manager:
        queues = [await manager.create(name, ANY) for name in ("a", "b")]
    assert [queue.is_running for queue in queues] == [False, False]
    assert manager.get("a") is None


async def test_a_duplicate_is_refused_and_nothing_was_started() -> None:
    async with BatchQueueManager() as manager:
        queue = await manager.create("q", ANY)
        before = asyncio.all_tasks()
        with pytest.raises(DuplicateQueue, match="'q'"):
            await manager.create("q", BatchQueueConfig[int](buffer_size=7))
        assert asyncio.all_tasks() == before
        assert manager.get("q") is queue
        assert queue.is_running


async def test_of_concurrent_creates_one_wins() -> None:
    async with BatchQueueManager() as manager:
        results = await asyncio.gather(
            *(manager.create("q", ANY) for _ in range(5)), return_exceptions=True
        )
        refused = [each for each in results if isinstance(each, DuplicateQueue)]
        assert len(refused) == 4


async def test_two_managers_know_nothing_of_each_other() -> None:
    async with BatchQueueManager() as one, BatchQueueManager() as two:
        assert await one.create("q", ANY) is not await two.create("q", ANY)


class TestGetOrCreate:
    async def test_creates_once(self) -> None:
        async with BatchQueueManager() as manager:
            queue = await manager.get_or_create("q", ANY)
            assert queue.is_running
            assert await manager.get_or_create("q", ANY) is queue
            assert await manager.get_or_create("q", BatchQueueConfig[Any]()) is queue

    async def test_concurrently_all_get_the_same(self) -> None:
        async with BatchQueueManager() as manager:
            queues = await asyncio.gather(
                *(manager.get_or_create("q", ANY) for _ in range(5))
            )
            assert len(set(map(id, queues))) == 1

    async def test_equal_settings_are_no_news(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with BatchQueueManager() as manager:
            for _ in range(2):
                await manager.get_or_create("q", BatchQueueConfig[int](linger=1.0))
        assert warnings_in(caplog) == []

    async def test_other_settings_are_warned_of_once_and_change_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with BatchQueueManager() as manager:
            queue = await manager.get_or_create("q", BatchQueueConfig[int]())
            for size in (5, 5, 6):
                config = BatchQueueConfig[int](
                    buffer_size=size, idle=IdleBackoff(1.0, 2.0)
                )
                assert await manager.get_or_create("q", config) is queue
            assert queue.stats().capacity == 10_000
        messages = warnings_in(caplog)
        assert len(messages) == 1
        assert "buffer_size" in messages[0]
        assert "idle" in messages[0]
        assert "linger" not in messages[0]

    async def test_a_handler_that_was_defined_again_is_told_from_the_first(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As by a notebook's cell: both are shown by the same name."""

        def cell() -> BatchQueueConfig[int]:
            def store(_: list[int]) -> None:
                pass

            return BatchQueueConfig(consumer=store)

        async with BatchQueueManager() as manager:
            await manager.get_or_create("q", cell())
            await manager.get_or_create("q", cell())
        (message,) = warnings_in(caplog)
        assert message.endswith("store (not another one like it)")

    @pytest.mark.parametrize("first_has_consumer", [True, False])
    async def test_another_dispatch_mode_is_a_conflict(
        self, *, first_has_consumer: bool
    ) -> None:
        configs = [
            BatchQueueConfig[int](),
            BatchQueueConfig[int](consumer=lambda _: None),
        ]
        if first_has_consumer:
            configs.reverse()
        async with BatchQueueManager() as manager:
            queue = await manager.get_or_create("q", configs[0])
            with pytest.raises(ConfigConflict, match="'q'"):
                await manager.get_or_create("q", configs[1])
            assert manager.get("q") is queue


class TestShutdown:
    async def test_of_one_queue_frees_its_name(self) -> None:
        async with BatchQueueManager() as manager:
            queue = await manager.create("q", ANY)
            other = await manager.create("other", ANY)
            assert await manager.shutdown("q") == []
            assert not queue.is_running
            assert other.is_running
            assert manager.get("q") is None
            assert await manager.create("q", ANY) is not queue

    async def test_of_one_queue_returns_its_leftovers(self) -> None:
        manager = BatchQueueManager()
        queue = await manager.create("q", BatchQueueConfig[int]())
        queue.add_handler(int, RecordingHandler[int](gate=asyncio.Event()))
        await queue.produce_many([1, 2])
        assert await manager.shutdown("q", timeout=0.01) == [1, 2]

    async def test_of_an_unknown_name_is_nothing(self) -> None:
        assert await BatchQueueManager().shutdown("nobody") == []

    async def test_of_a_queue_that_was_closed_by_hand(self) -> None:
        async with BatchQueueManager() as manager:
            queue = await manager.create("q", ANY)
            await queue.shutdown()
            assert await manager.shutdown("q") == []


class TestShutdownAll:
    async def test_the_last_created_goes_first(self) -> None:
        order: list[str] = []

        class Closing(RecordingHandler[int]):
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            async def on_close(self) -> None:
                order.append(self.name)
                await asyncio.sleep(0.001)

        manager = BatchQueueManager()
        for name in ("a", "b", "c"):
            queue = await manager.create(name, ANY)
            queue.add_handler(int, Closing(name))
        await manager.shutdown_all()
        assert order == ["c", "b", "a"]
        assert manager.get("a") is None

    async def test_a_chain_drains_to_its_end(self) -> None:
        """Every stage passes on what it got, and its last words at its close."""

        class Passing(RecordingHandler[int]):
            def __init__(self, to: str) -> None:
                super().__init__(delay=0.001)
                self.to = to

            async def consume(self, batch: list[int]) -> None:
                await super().consume(batch)
                queue = manager.get(self.to)
                assert queue is not None
                assert await queue.produce_many(batch) == len(batch)

            async def on_close(self) -> None:
                queue = manager.get(self.to)
                assert queue is not None
                assert await queue.produce(1000)

        last = RecordingHandler[int]()
        manager = BatchQueueManager()
        stages: list[tuple[str, RecordingHandler[int]]] = [
            ("sql", last),
            ("l2", Passing("sql")),
            ("l1", Passing("l2")),
        ]
        for name, handler in stages:
            config = BatchQueueConfig[int](buffer_size=5, max_batch=2, linger=0.005)
            (await manager.create(name, config)).add_handler(int, handler)
        first = manager.get("l1")
        assert first is not None
        await first.produce_many(range(20))
        left = await manager.shutdown_all()
        assert not any(left.values())
        assert last.handled == [*range(20), 1000, 1000]

    async def test_leftovers_come_by_name(self) -> None:
        manager = BatchQueueManager()
        for name in ("a", "b", "c"):
            queue = await manager.create(name, BatchQueueConfig[str]())
            if name != "b":
                queue.add_handler(str, RecordingHandler[str](gate=asyncio.Event()))
                await queue.produce(name)
        left = await manager.shutdown_all(timeout=0.02)
        assert {name: items for name, items in left.items() if items} == {
            "a": ["a"],
            "c": ["c"],
        }

    @virtual
    async def test_one_deadline_holds_for_all(self) -> None:
        manager = BatchQueueManager()
        for name in ("a", "b", "c", "d"):
            queue = await manager.create(name, BatchQueueConfig[str]())
            queue.add_handler(str, RecordingHandler[str](gate=asyncio.Event()))
            await queue.produce(name)
        began = asyncio.get_running_loop().time()
        left = await manager.shutdown_all(timeout=5.0)
        assert asyncio.get_running_loop().time() - began < 6.0
        assert set(left) == {"a", "b", "c", "d"}
        assert live_timers() == []

    async def test_one_failure_does_not_stop_the_rest(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        manager = BatchQueueManager()
        queues = [await manager.create(name, ANY) for name in ("a", "b", "c")]

        async def fail(timeout: float | None = 30.0) -> list[Any]:
            message = "cannot shut down"
            raise RuntimeError(message)

        with monkeypatch.context() as patch:
            patch.setattr(queues[1], "shutdown", fail)
            await manager.shutdown_all()
        assert [queue.is_running for queue in queues] == [False, True, False]
        assert "'b'" in caplog.text
        assert "cannot shut down" in caplog.text
        await queues[1].shutdown()

    async def test_twice_and_concurrently(self) -> None:
        manager = BatchQueueManager()
        handler = RecordingHandler[int](delay=0.005)
        for name in ("a", "b", "c"):
            queue = await manager.create(name, ANY)
            queue.add_handler(int, handler)
            await queue.produce(1)
        await asyncio.gather(*(manager.shutdown_all() for _ in range(3)))
        assert len(handler.handled) == 3
        assert await manager.shutdown_all() == {}

    async def test_every_concurrent_call_returns_after_the_end(self) -> None:
        manager = BatchQueueManager()
        handler = RecordingHandler[int](delay=0.005)
        queue = await manager.create("q", ANY)
        queue.add_handler(int, handler)
        await queue.produce(1)
        first = asyncio.create_task(manager.shutdown_all())
        await turns(3)
        await manager.shutdown_all()
        assert handler.handled == [1]
        await first

    async def test_a_queue_that_is_created_meanwhile_is_closed_too(self) -> None:
        manager = BatchQueueManager()

        class Closing(RecordingHandler[int]):
            async def on_close(self) -> None:
                await manager.create("late", ANY)

        queue = await manager.create("early", ANY)
        queue.add_handler(int, Closing())
        await manager.shutdown_all()
        assert manager.get("late") is None

    async def test_from_a_handler(self) -> None:
        """Its own queue only begins to close; the call returns."""
        manager = BatchQueueManager()
        done = asyncio.Event()

        async def consume(batch: list[int]) -> None:
            await manager.shutdown_all(timeout=1.0)
            done.set()

        queue = await manager.create("q", ANY)
        queue.add_handler(int, consume)
        await queue.produce(1)
        async with asyncio.timeout(30.0):
            await done.wait()
        assert await queue.shutdown() == []
        assert queue.stats().handled == 1

    async def test_cancelled_it_can_be_called_again(self) -> None:
        manager = BatchQueueManager()
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        for name in ("a", "b"):
            queue = await manager.create(name, ANY)
            queue.add_handler(int, handler)
            await queue.produce(1)
        closing = asyncio.create_task(manager.shutdown_all())
        await turns()
        closing.cancel()
        await asyncio.wait({closing})
        gate.set()
        await manager.shutdown_all()
        await asyncio.sleep(0.01)
        assert len(handler.handled) == 2


async def test_leaving_the_manager_closes_all_also_after_an_error() -> None:
    handler = RecordingHandler[int]()

    async def fail() -> None:
        async with BatchQueueManager() as manager:
            queue = await manager.create("q", ANY)
            queue.add_handler(int, handler)
            await queue.produce(1)
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert handler.calls[-1] == "on_close"
    assert handler.handled == [1]
