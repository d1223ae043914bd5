"""`on_open` comes before the first batch, and `on_tick` from time to time."""

import asyncio
import time
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Retry,
    in_thread,
    round_robin,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


class Opened(RecordingHandler[Any]):
    """Fails to open so often."""

    def __init__(self, failures: int = 0, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        self.failures = failures

    async def on_open(self) -> None:
        with self._inside("on_open"):
            await asyncio.sleep(0)
            if self.failures:
                self.failures -= 1
                raise ConnectionError


class TestOnOpen:
    async def test_it_comes_once_before_the_first_batch(self) -> None:
        handler = Opened()
        config = BatchQueueConfig[int](consumer=handler, max_batch=1)
        async with BatchQueue("q", config) as queue:
            await turns()
            assert handler.calls == [], "not before there is something to do"
            await queue.produce_many([1, 2])
            await until(lambda: len(handler.handled) == 2)
        calls = [call for call in handler.calls if call != "on_idle"]
        assert calls == ["on_open", "consume", "consume", "on_close"]
        assert handler.max_concurrency == 1

    async def test_a_sync_one_will_do(self) -> None:
        class Handler:
            calls: list[object]

            def consume(self, batch: list[int]) -> int:
                self.calls.append(batch)
                return 1

            def on_open(self) -> bool:
                self.calls = ["on_open"]
                return True

        handler = Handler()
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
            await queue.produce_many([1, 2])
        assert handler.calls == ["on_open", [1, 2]]

    async def test_raising_fails_the_batch_and_it_is_called_again(self) -> None:
        handler = Opened(failures=1)
        config = BatchQueueConfig[int](
            consumer=handler, max_batch=1, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2, 3])
        assert handler.handled == [2, 3]
        assert handler.calls.count("on_open") == 2
        assert check_settled(queue).failed == 1

    async def test_a_retry_opens_again(self) -> None:
        handler = Opened(failures=2)
        config = BatchQueueConfig[int](
            consumer=handler, retry=Retry(attempts=3, wait_initial=0)
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        assert handler.handled == [1]

    @pytest.mark.parametrize("removes", [False, True])
    async def test_what_never_opened_gets_no_other_hook(self, *, removes: bool) -> None:
        handler = Opened(failures=9)
        config = BatchQueueConfig[int](on_error=lambda _batch, _error: None)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            with pytest.raises(Exception, match="1 failure"):
                await queue.flush()
            await asyncio.sleep(0.02)
            if removes:
                queue.remove_handler(int)
                await turns()
        assert set(handler.calls) == {"on_open"}
        assert queue.stats().not_closed == ()
        assert not queue._parts.handlers.retired

    @virtual
    async def test_the_timeout_bounds_it(self) -> None:
        class Slow(Opened):
            async def on_open(self) -> None:
                await asyncio.sleep(1000)

        config = BatchQueueConfig[int](
            consumer=Slow(), handler_timeout=5.0, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await asyncio.sleep(6)
            assert queue.stats().failed == 1

    async def test_several_drain_tasks_and_types_open_it_once(self) -> None:
        handler = Opened()
        config = BatchQueueConfig[Any](
            drain_tasks=DrainTaskPolicy.fixed(3),
            partitions=PartitionPolicy.fixed(3),
            selector=round_robin,
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            queue.add_handler(bool, handler)
            await queue.produce_many([1, True, 2, False, 3, True])
            await queue.flush()
        assert handler.calls.count("on_open") == 1
        assert handler.calls.count("on_close") == 1
        assert len(handler.handled) == 6

    async def test_one_that_comes_back_is_opened_again(self) -> None:
        handler = Opened()
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await queue.flush()
            queue.remove_handler(int)
            await until(lambda: handler.close_calls)
            queue.add_handler(int, handler)
            await queue.produce(2)
        calls = [each for each in handler.calls if each not in {"on_idle", "on_flush"}]
        assert calls == ["on_open", "consume", "on_close"] * 2


class Ticking(RecordingHandler[Any]):
    def __init__(self, every: float, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        self.tick_every = every
        self.ticks: list[float] = []

    def on_tick(self) -> None:
        with self._inside("on_tick"):
            self.ticks.append(asyncio.get_running_loop().time())


@virtual
class TestOnTick:
    async def test_it_comes_at_equal_distances_to_an_idle_handler(self) -> None:
        handler = Ticking(10.0)
        started = asyncio.get_running_loop().time()
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)):
            await asyncio.sleep(45)
        expected = [started + n for n in (10, 20, 30, 40)]
        assert handler.ticks == pytest.approx(expected, abs=0.1)

    async def test_it_comes_under_saturation_where_on_idle_never_does(self) -> None:
        handler = Ticking(1.0, delay=0.3)
        config = BatchQueueConfig[int](consumer=handler, max_batch=1)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(20))
            await asyncio.sleep(5.9)
            assert handler.idle_calls == 0
            assert 4 <= len(handler.ticks) <= 6
            assert handler.max_concurrency == 1

    async def test_what_was_missed_is_one_tick(self) -> None:
        handler = Ticking(1.0)
        started = asyncio.get_running_loop().time()
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
            await asyncio.sleep(0.5)
            handler.delay = 10.0
            await queue.produce(1)
            await asyncio.sleep(11.0)
        expected = [started + 10.5, started + 11]
        assert handler.ticks == pytest.approx(expected, abs=0.1), "and in step again"

    async def test_it_waits_for_the_opening(self) -> None:
        class Handler(Ticking):
            def on_open(self) -> None:
                self.calls.append("on_open")

        handler = Handler(1.0)
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
            await asyncio.sleep(10)
            assert handler.calls == []
            await queue.produce(1)
            await asyncio.sleep(1.5)
        assert handler.calls[:2] == ["on_open", "consume"]
        assert len(handler.ticks) == 1

    async def test_a_handler_of_two_types_has_one_clock(self) -> None:
        handler = Ticking(1.0)
        async with BatchQueue[Any]("q") as queue:
            queue.add_handler(int, handler)
            queue.add_handler(str, handler)
            await asyncio.sleep(10.5)
        assert len(handler.ticks) == 10

    async def test_a_consumer_that_is_never_left_alone_gets_it_too(self) -> None:
        """Two drain tasks take turns in it, so that it is never empty."""
        handler = Ticking(5.0, delay=1.0)
        config = BatchQueueConfig[int](
            consumer=handler,
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(2),
            selector=lambda item, n: item % n,
            max_batch=1,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(0)
            await asyncio.sleep(0.5)
            await queue.produce_many(range(1, 60))
            await asyncio.sleep(25)
            assert len(handler.ticks) >= 2
            await queue.shutdown(None)

    async def test_it_goes_by_its_own_time_however_long_a_nap_is(self) -> None:
        handler = Ticking(1.0)
        naps = IdleBackoff(shortest=10.0, longest=100.0)
        config = BatchQueueConfig[int](consumer=handler, idle=naps)
        async with BatchQueue("q", config):
            await asyncio.sleep(9.5)
        assert len(handler.ticks) == 9

    async def test_while_others_are_in_the_handler_nobody_looks_all_the_time(
        self,
    ) -> None:
        handler = Ticking(10.0, delay=19.0)
        config = BatchQueueConfig[int](
            consumer=handler,
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(2),
            selector=round_robin,
        )
        looks = 0

        def looked(late: float) -> float:
            nonlocal looks
            looks += 1
            return late

        async with BatchQueue("q", config) as queue:
            await asyncio.sleep(9.0)
            await queue.produce(1)
            await asyncio.sleep(0.5)
            ticks = queue._parts.handlers.consumer.ticks  # type: ignore[union-attr]
            assert ticks is not None
            late = ticks.late
            ticks.late = lambda now: looked(late(now))  # type: ignore[method-assign]
            await asyncio.sleep(9.0)
        assert 0 < looks < 500

    async def test_one_that_is_late_by_a_period_waits_in_line(self) -> None:
        """Also where that is a bit less by rounding: looking again would not end."""
        handler = Ticking(0.27)
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
            registration = queue._parts.handlers.consumer
            assert registration is not None
            ticks, lock = registration.ticks, registration.lock
            assert ticks is not None
            ticks.due = 847.433737
            now = ticks.due + ticks.every
            assert now - ticks.due < ticks.every
            assert lock.try_acquire("another call")
            hooks = queue._parts.hooks
            tick = asyncio.create_task(hooks._tick(ticks, registration, now, 0))
            await asyncio.sleep(1.0)
            assert not tick.done()
            lock.release("another call")
            assert await tick > now

    async def test_what_it_raises_is_logged_and_the_next_one_comes(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Handler(Ticking):
            def on_tick(self) -> None:
                super().on_tick()
                raise ValueError

        handler = Handler(1.0)
        async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)):
            await asyncio.sleep(3.5)
        assert len(handler.ticks) == 3
        assert "on_tick of" in caplog.text


@pytest.mark.real_time
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_in_a_thread_too() -> None:
    calls: list[str] = []

    class Handler:
        tick_every = 0.01

        def consume(self, _: list[int]) -> None:
            calls.append("consume")

        def on_open(self) -> None:
            calls.append("on_open")

        def on_tick(self) -> None:
            calls.append("on_tick")

    config = BatchQueueConfig[int](consumer=in_thread(Handler()))
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await until(lambda: "on_tick" in calls)
    assert calls[:2] == ["on_open", "consume"]


@pytest.mark.real_time
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_many_ticks_that_are_due_at_once_let_others_run_in_between() -> None:
    ran, seen = 0, set[int]()

    class Blocking:
        tick_every = 0.05

        def consume(self, batch: list[Any]) -> None:
            """Nothing comes."""

        def on_tick(self) -> None:
            seen.add(ran)
            time.sleep(0.001)

    async with BatchQueue[Any]("q") as queue:
        for number in range(50):
            queue.add_handler(type(f"Kind{number}", (), {}), Blocking())
        while not seen:
            await asyncio.sleep(0)
            ran += 1
        for _ in range(100):
            await asyncio.sleep(0)
            ran += 1
    assert len(seen) >= 20
