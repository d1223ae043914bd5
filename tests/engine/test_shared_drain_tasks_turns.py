"""Shared drain tasks: how many handlers at once, and who comes next."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import Retry
from tests.engine.every_loop import every_loop
from tests.engine.observing import tasks_of
from tests.engine.sharing import Together, sharing
from tests.engine.until import turns, until
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


@virtual  # Timeouts beside delays: of real ones nobody knows which comes first.
class TestBound:
    @pytest.mark.parametrize("n", [1, 2, 5])
    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"max_batch": 1},
            {"handler_timeout": 0.004},
            {"retry": Retry(attempts=2, wait_initial=0.002, split=True)},
        ],
        ids=["plain", "small batches", "timeouts", "retries"],
    )
    async def test_never_more_calls_than_drain_tasks_and_all_of_them_in_use(
        self, n: int, settings: dict[str, Any]
    ) -> None:
        together = Together()

        def fails(batch: list[Any]) -> Exception | None:
            return ValueError("every third") if batch[0] % 3 == 0 else None

        handlers = [
            together.handler(f"{number}", delay=0.003 * (number % 3), fail_when=fails)
            for number in range(8)
        ]
        failed: list[Any] = []
        async with sharing(
            n, *handlers, on_error=lambda batch, _: failed.extend(batch), **settings
        ) as queues:
            for first in (1, 4, 7):
                for queue in queues:
                    await queue.produce_many(range(first, first + 3))
                await asyncio.sleep(0.002)
        handled = [item for each in handlers for item in each.handled]
        assert sorted(handled + failed) == sorted([*range(1, 10)] * 8)
        assert together.most == n
        assert together.inside == 0

    async def test_a_permit_comes_back_whatever_the_handler_does(self) -> None:
        """It fails, times out, cancels itself, and is followed by a good call."""
        calls = 0

        async def faulty(_: list[int]) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ValueError
            if calls == 2:
                await asyncio.sleep(60)
            if calls == 3:
                raise asyncio.CancelledError
            if calls == 4:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

        quick = RecordingHandler[int]()
        async with sharing(
            1, faulty, quick, handler_timeout=0.01, on_error=lambda *_: None
        ) as (one, two):
            for number in range(1, 6):
                assert await one.produce(number)
                await until(lambda n=number: calls == n)  # type: ignore[misc]
                assert await two.produce(number)
                await until(lambda n=number: n in quick.handled)  # type: ignore[misc]


class TestFairness:
    async def test_a_saturated_queue_lets_every_other_one_in_once_a_round(self) -> None:
        """Turns go round: between two calls of a queue each other one has had one."""
        together = Together()
        names = ("busy", "also busy", "third")
        handlers = [together.handler(name) for name in names]
        async with sharing(1, *handlers, max_batch=1) as queues:
            for queue in queues:
                await queue.produce_many(range(20))
        for start in range(3, 57, 3):
            assert sorted(together.entered[start : start + 3]) == sorted(names)

    async def test_who_comes_late_waits_for_one_round_only(self) -> None:
        together = Together()
        busy = [together.handler("busy") for _ in range(5)]
        late = together.handler("late")
        async with sharing(2, *busy, late, max_batch=1) as queues:
            for queue in queues[:-1]:
                await queue.produce_many(range(50))
            await until(lambda: len(together.entered) > 20)
            before = len(together.entered)
            assert await queues[-1].produce(1)
            await until(lambda: late.handled)
            assert together.entered.index("late") - before <= len(busy) + 2

    async def test_cancelled_waits_keep_no_turn_and_lose_none(self) -> None:
        """Strangers cancel drain tasks that wait for a permit; they go on waiting."""
        together = Together()
        gate = asyncio.Event()
        first = together.handler("first", gate=gate)
        others = [together.handler(f"{number}") for number in range(3)]
        async with sharing(1, first, *others) as queues:
            for queue in queues:
                assert await queue.produce(1)
            await first.entered()
            for _ in range(3):
                for task in tasks_of(queues[1]) + tasks_of(queues[2]):
                    task.cancel()
                await turns()
            assert together.entered == ["first"]
            gate.set()
            await until(lambda: all(each.handled == [1] for each in others))
            assert together.most == 1
