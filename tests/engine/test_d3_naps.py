"""D3: naps double from the shortest to the longest; an idle queue costs nothing."""

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.observing import live_timers
from tests.engine.until import turns, until
from tests.support.recording_handler import RecordingConsumer
from tests.support.settle import settle

NAPS = IdleBackoff(shortest=1.0, longest=10.0)


class Idle(RecordingHandler[Any]):
    """Remembers when it was idle."""

    def __init__(self) -> None:
        super().__init__()
        self.idle_times: list[float] = []

    async def on_idle(self) -> None:
        await super().on_idle()
        self.idle_times.append(asyncio.get_running_loop().time())

    def gaps_since(self, began: float) -> list[float]:
        times = [each for each in self.idle_times if each >= began]
        return [b - a for a, b in pairwise(times)]


class TestBackoff:
    async def test_after_the_start_naps_double_up_to_the_longest(self) -> None:
        handler = Idle()
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, handler)
            await until(lambda: handler.idle_times, patience=60.0)
            await asyncio.sleep(60.0)
            gaps = handler.gaps_since(handler.idle_times[0])
        assert gaps[-3:] == pytest.approx([10.0, 10.0, 10.0])
        assert gaps == sorted(gaps)

    async def test_the_first_nap_after_data_is_the_shortest(self) -> None:
        """The original's first one was twice as long."""
        handler = Idle()
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(100.0)
            await queue.produce(1)
            await until(lambda: handler.handled, patience=60.0)
            handled = handler.times[0]
            await asyncio.sleep(50.0)
            gaps = handler.gaps_since(handled)
        assert gaps[:6] == pytest.approx([1.0, 2.0, 4.0, 8.0, 10.0, 10.0])
        first = next(each for each in handler.idle_times if each >= handled)
        assert first - handled <= 1.0

    async def test_every_arrival_starts_it_anew(self) -> None:
        handler = Idle()
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, handler)
            for item in range(3):
                await asyncio.sleep(40.0)
                await queue.produce(item)
                await until(lambda: len(handler.times) == item + 1, patience=60.0)  # noqa: B023
                handled = handler.times[-1]
                await asyncio.sleep(8.0)
                assert handler.gaps_since(handled)[:2] == pytest.approx([1.0, 2.0])

    async def test_a_shorter_nap_of_its_own_for_each_drain_task(self) -> None:
        """Data for one of two drain tasks leaves the other one's naps alone."""
        ints, strings = Idle(), Idle()
        config = BatchQueueConfig[object](
            idle=NAPS,
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(2),
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, ints)
            queue.add_handler(str, strings)
            await asyncio.sleep(100.0)
            began = asyncio.get_running_loop().time()
            for item in range(30):
                await queue.produce(item)
                await asyncio.sleep(1.0)
            assert strings.gaps_since(began) == pytest.approx([10.0, 10.0])


class TestNothingToDo:
    async def test_no_timer_without_handlers(self) -> None:
        async with BatchQueue[int]("q"):
            await settle()
            assert live_timers() == []

    async def test_no_timer_without_on_idle_handlers(self) -> None:
        config = BatchQueueConfig[int](
            linger=5.0, idle=NAPS, drain_tasks=DrainTaskPolicy.fixed(4),
            partitions=PartitionPolicy.fixed(8),
        )  # fmt: skip
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, RecordingConsumer[int]())
            await settle()
            assert live_timers() == []
            await queue.produce(1)
            await asyncio.sleep(10.0)
            await settle()
            assert live_timers() == [], "also after data"
            await queue.produce(1)
            await queue.flush()
            await settle()
            assert live_timers() == [], "also after a flush"

    async def test_no_timer_once_the_on_idle_handler_is_removed(self) -> None:
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            queue.add_handler(int, RecordingHandler[int]())
            await settle()
            assert len(live_timers()) == 1
            queue.remove_handler(int)
            await settle()
            assert live_timers() == []

    async def test_an_on_idle_handler_that_comes_late_gets_its_naps(self) -> None:
        handler = Idle()
        async with BatchQueue("q", BatchQueueConfig[int](idle=NAPS)) as queue:
            await asyncio.sleep(1000.0)
            queue.add_handler(int, handler)
            await asyncio.sleep(30.0)
            assert handler.idle_calls >= 3

    async def test_thousands_of_idle_queues_set_no_timer(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(False)  # It would note a stack for each of their tasks.
        queues = [BatchQueue[int](f"q{i}") for i in range(2000)]
        for queue in queues:
            queue.add_handler(int, RecordingConsumer[int]())
            await queue.start()
        await turns()
        assert live_timers() == []
        assert not loop._ready  # type: ignore[attr-defined]
        for queue in queues:
            await queue.shutdown(timeout=None)


@pytest.mark.real_time
async def test_a_thousand_idle_queues_take_no_time() -> None:
    """A tenth of the promise, measured for a moment; it is mostly zero."""
    asyncio.get_running_loop().set_debug(False)
    queues = [BatchQueue[int](f"q{i}") for i in range(1000)]
    for queue in queues:
        queue.add_handler(int, RecordingConsumer[int]())
        await queue.start()
    await turns()
    began = time.process_time()
    await asyncio.sleep(0.5)
    used = time.process_time() - began
    for queue in queues:
        await queue.shutdown(timeout=None)
    assert used < 0.05


@pytest.mark.real_time
async def test_on_a_real_clock_no_nap_is_skipped() -> None:
    """A timer that fires a clock tick early must not cost the handler its call.

    A busy machine lengthens gaps, too, but not for ever; skipped naps double them all.
    """
    config = BatchQueueConfig[int](idle=IdleBackoff(0.0104, 0.0104))
    for _ in range(20):
        handler = Idle()
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await asyncio.sleep(0.5)
        gaps = sorted(handler.gaps_since(0.0))
        if gaps[len(gaps) // 2] < 0.016:
            return
    pytest.fail(f"half of the gaps are longer than {gaps[len(gaps) // 2]}")
