"""D4: hooks come when they are due, whatever other handlers wait for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    Merging,
    PartitionPolicy,
    Retry,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.planned import Planned, rebalanced

pytestmark = pytest.mark.asyncio(loop_factories=["virtual"])

STEADY = IdleBackoff(shortest=1.0, longest=1.0)
OUTAGE = Retry(attempts=2, wait_initial=100.0, wait_max=100.0)


class Down(RecordingHandler[Any]):
    """Fails once; its next attempt is 90 seconds later."""

    def __init__(self) -> None:
        super().__init__(fail_when=lambda _: None if self.failed else OSError())


class Ticking(RecordingHandler[Any]):
    def __init__(self, every: float, tick: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.tick_every = every
        self.tick = tick
        self.times_of_ticks: list[float] = []

    async def on_tick(self) -> None:
        self.times_of_ticks.append(asyncio.get_running_loop().time())
        self.tick()


class Opened(Ticking):
    def on_open(self) -> None:
        self.calls.append("on_open")


@pytest.fixture(autouse=True)
def _long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.9)


@pytest.mark.parametrize("drain_tasks", [1, 2])
async def test_who_waits_for_a_retry_is_not_told(drain_tasks: int) -> None:
    """Also if others get batches, and whichever drain task has the batch."""
    down, busy = Down(), RecordingHandler[str]()
    config = BatchQueueConfig[Any](
        idle=STEADY,
        retry=OUTAGE,
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _: int(item == 1),
    )
    async with BatchQueue("q", config) as queue:
        # The first drain task calls its hooks; the last one gets its item.
        queue.add_handler(int, down)
        queue.add_handler(str, busy)
        await queue.produce(1)
        await asyncio.sleep(0.5)
        before = down.idle_calls
        for _ in range(320):
            await queue.produce("text")
            await asyncio.sleep(0.25)
        assert down.failed == [1]
        assert down.idle_calls == before
        await asyncio.sleep(30.0)
        assert down.handled == [1]
        assert down.idle_calls > before


async def test_others_are_told_meanwhile() -> None:
    down, other = Down(), RecordingHandler[str]()
    config = BatchQueueConfig[Any](
        idle=STEADY, retry=OUTAGE, partitions=PartitionPolicy.adaptive()
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, down)
        queue.add_handler(str, other)
        await queue.produce(1)
        await queue.produce("text")
        await asyncio.sleep(0.5)
        before = other.idle_calls
        await asyncio.sleep(50.0)
        assert down.failed == [1]
        assert not down.handled
        assert 49 <= other.idle_calls - before <= 51


async def test_who_may_have_items_behind_a_batch_that_is_tried_again_is_not() -> None:
    down, other = Down(), RecordingHandler[str]()
    config = BatchQueueConfig[Any](idle=STEADY, retry=OUTAGE)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, down)
        queue.add_handler(str, other)
        await queue.produce(1)
        await asyncio.sleep(0.5)
        await queue.produce("text")
        before = other.idle_calls
        await asyncio.sleep(50.0)
        assert not other.items
        assert other.idle_calls == before


async def test_others_are_told_while_items_linger() -> None:
    handed: list[Any] = []
    merging = Merging[str](key=len, merge=lambda _, new: new, then=handed.extend)
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.adaptive())
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, RecordingHandler[int](), linger=100.0)
        queue.add_handler(str, merging)
        await queue.produce(1)
        await queue.produce("text")
        await asyncio.sleep(1.0)
        assert handed == ["text"]


@pytest.mark.parametrize("place", [0, 1])
async def test_ticks_begin_with_the_opening_whoever_opens(place: int) -> None:
    handler = Opened(1.0)
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda *_: place,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        await asyncio.sleep(0.4)
        opened = asyncio.get_running_loop().time()
        await queue.produce(1)
        await asyncio.sleep(3.5)
    expected = [opened + n for n in (1, 2, 3)]
    assert handler.times_of_ticks == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("kind", [Ticking, Opened])
async def test_ticks_begin_anew_where_a_handler_comes_back(kind: type[Ticking]) -> None:
    handler = kind(1.0)
    async with BatchQueue[Any]("q") as queue:
        queue.add_handler(int, handler)
        queue.add_handler(str, handler)
        await queue.produce(1)
        await asyncio.sleep(2.5)
        queue.remove_handler(int)
        await asyncio.sleep(1.0)
        assert len(handler.times_of_ticks) == 3, "one type is left"
        queue.remove_handler(str)
        await asyncio.sleep(7.7)
        handler.times_of_ticks.clear()
        queue.add_handler(int, handler)
        await asyncio.sleep(0.3 if kind is Opened else 0)
        back = asyncio.get_running_loop().time()
        await queue.produce(2)
        await asyncio.sleep(2.5)
    expected = [back + 1, back + 2]
    assert handler.times_of_ticks == pytest.approx(expected, abs=0.01)


async def test_a_tick_may_take_its_own_handler_out_and_put_it_back() -> None:
    def come_back() -> None:
        queue.remove_handler(int)
        if len(handler.times_of_ticks) < 3:
            queue.add_handler(int, handler)

    handler = Ticking(1.0, come_back)
    async with BatchQueue[Any]("q") as queue:
        began = asyncio.get_running_loop().time()
        queue.add_handler(int, handler)
        await asyncio.sleep(10.0)
    expected = [began + n for n in (1, 2, 3)]
    assert handler.times_of_ticks == pytest.approx(expected, abs=0.01)


async def test_a_handoff_does_not_delay_them_where_items_linger() -> None:
    """The new owner slept for as long as items linger, though none were there."""
    handler, balancer = Ticking(1.0), Planned([1, 1], on_demand=True)
    async with rebalanced(balancer, interval=0.2, linger=100.0) as queue:
        queue.add_handler(int, handler)
        await asyncio.sleep(2.5)
        await balancer.round(1)
        await asyncio.sleep(5.0)
        assert len(handler.times_of_ticks) == 7


async def test_a_handler_of_two_types_waits_for_both_also_with_two_drain_tasks() -> (
    None
):
    handler = RecordingHandler[Any]()
    config = BatchQueueConfig[Any](
        idle=STEADY,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, handler)
        queue.add_handler(str, handler, linger=50.0)
        assert queue.partition_of(1) != queue.partition_of("text")
        await queue.produce("text")
        before = handler.idle_calls
        await asyncio.sleep(40.0)
        assert handler.idle_calls == before
        await asyncio.sleep(40.0)
        assert handler.idle_calls > before


class Busy(Ticking):
    """Two or three drain tasks are in it by turns, so it is never left alone."""

    async def consume(self, batch: list[Any]) -> None:
        del batch
        await asyncio.sleep(1.0)


@pytest.mark.parametrize("drain_tasks", [2, 3])
async def test_ticks_that_waited_in_line_are_one(drain_tasks: int) -> None:
    handler = Busy(0.27)
    config = BatchQueueConfig[int](
        consumer=handler,
        drain_tasks=DrainTaskPolicy.fixed(drain_tasks),
        partitions=PartitionPolicy.fixed(drain_tasks),
        selector=lambda item, count: item % count,
        max_batch=1,
    )
    async with BatchQueue("q", config) as queue:
        for item in range(60):
            await queue.produce(item)
            await asyncio.sleep(0.17)
        times = handler.times_of_ticks
        await queue.shutdown(None)
    assert len(times) > 5
    assert len(set(times)) == len(times)


@pytest.mark.parametrize("closes", [False, True])
async def test_a_tick_in_line_is_not_called_any_more_after_the_end(
    *, closes: bool
) -> None:
    """Of its queue, or of its handler, whose `on_close` was called meanwhile."""

    def tick() -> None:
        handler.calls.append("on_tick")

    handler = Busy(0.3, tick)
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(3),
        selector=lambda item, _: int(item),
    )
    queue = BatchQueue[Any]("q", config)
    await queue.start()
    # The first drain task calls its hooks, and the others have its items.
    queue.add_handler(int, handler)
    await queue.produce(1)
    await asyncio.sleep(0.5)
    await queue.produce(2)
    await asyncio.sleep(0.3)
    assert queue._parts.handlers.of_exactly(int).lock._waiting, "it stands in line"  # type: ignore[union-attr]
    if closes:
        queue.remove_handler(int)
    await queue.shutdown(None)
    assert "on_tick" not in handler.calls[handler.calls.index("on_close") :]
    assert handler.times_of_ticks == []


async def test_a_late_tick_stands_for_one_that_is_due_at_once() -> None:
    """By rounding the next one was due a moment later: both came at once."""
    handler = Ticking(0.05)
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        registration = queue._parts.handlers.consumer
        assert registration is not None
        ticks = registration.ticks
        assert ticks is not None
        for number in range(1000):
            ticks.due = number / 1000
            ticks.done(now := round(ticks.due + 3 * ticks.every, 6))
            assert ticks.due - now > 0.04


@pytest.mark.parametrize("place", [0, 1])
async def test_it_comes_right_after_data_whichever_drain_task_had_it(
    place: int,
) -> None:
    handed: list[Any] = []
    merging = Merging[int](key=bool, merge=lambda _, new: new, then=handed.extend)
    config = BatchQueueConfig[Any](
        idle=IdleBackoff(0.1, 100.0),
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda *_: place,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, merging)
        await asyncio.sleep(60.0)
        await queue.produce(1)
        await asyncio.sleep(1.0)
        assert handed == [1]
