"""E1: load is demand since the last round, or the time spent in handlers."""

import asyncio
import time
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    CostBalancer,
    DrainBalancer,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
    RetryAfter,
    SharedDrainTasks,
    ThroughputBalancer,
    WhenFull,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import live_timers, tasks_of
from tests.engine.planned import INTERVAL, TYPES, Planned, rebalanced, register
from tests.engine.until import turns
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler
from tests.support.settle import settle

Recording = RecordingHandler[Any]
fixed = PartitionPolicy.fixed


async def round_of(balancer: Planned, number: int) -> list[float]:
    """Return the loads that the balancer saw in this round, from 1 on."""
    return list((await balancer.round(number)).loads)


# --- items


@every_loop
async def test_load_is_what_came_in_since_the_last_round() -> None:
    balancer = Planned()
    async with rebalanced(balancer, interval=0.1) as queue:
        register(queue, {int: Recording(), str: Recording()})
        assert await queue.produce_many([*range(30), "one"]) == 31
        assert await round_of(balancer, 1) == [30, 1]
        assert await queue.produce_many(["two", "three"]) == 2
        assert await round_of(balancer, 2) == [0, 2]
        assert await round_of(balancer, 3) == [0, 0]


@every_loop
async def test_refused_items_are_demand_too() -> None:
    """Or a partition would look less loaded the more it has to refuse."""
    gate = asyncio.Event()
    balancer = Planned()
    async with rebalanced(
        balancer, interval=0.1, buffer_size=2, when_full=WhenFull.DROP_NEWEST
    ) as queue:
        handler = Recording(gate=gate)
        register(queue, {int: handler, str: Recording()})
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce_many(range(10)) == 2
        assert not queue.produce_nowait(10)
        assert await round_of(balancer, 1) == [1 + 10 + 1, 0]
        assert not await queue.produce(11)
        assert await round_of(balancer, 2) == [1, 0]
        gate.set()
    assert check_settled(queue).rejected == 10


@every_loop
async def test_displaced_items_were_demand() -> None:
    gate = asyncio.Event()
    balancer = Planned()
    async with rebalanced(
        balancer, interval=0.1, buffer_size=2, when_full=WhenFull.DROP_OLDEST
    ) as queue:
        handler = Recording(gate=gate)
        register(queue, {int: handler, str: Recording()})
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce_many(range(10)) == 10
        assert await round_of(balancer, 1) == [11, 0]
        gate.set()
    assert check_settled(queue).dropped == 8


@every_loop
async def test_items_that_wait_through_a_round_count_once() -> None:
    gate = asyncio.Event()
    balancer = Planned()
    async with rebalanced(balancer, interval=0.1) as queue:
        handler = Recording(gate=gate)
        register(queue, {int: handler, str: Recording()})
        assert await queue.produce(0)
        await handler.entered()
        assert await queue.produce_many(range(5)) == 5
        assert await round_of(balancer, 1) == [6, 0]
        assert await round_of(balancer, 2) == [0, 0]
        gate.set()
        await queue.flush()
        assert (await round_of(balancer, len(balancer.asked) + 1))[0] == 0


@every_loop
async def test_items_without_a_handler_are_demand() -> None:
    balancer = Planned()
    async with rebalanced(balancer, interval=0.1) as queue:
        queue.add_handler(int, Recording())
        assert await queue.produce_many(["lost", "as well"]) == 2
        assert await round_of(balancer, 1) == [0, 2]


async def test_accepting_an_item_changes_no_counter() -> None:
    """What is counted at a take is derived until then from the buffer's length."""
    balancer = Planned()
    async with rebalanced(balancer) as queue:
        register(queue, {int: Recording(), str: Recording()})
        assert queue.produce_nowait(0)
        partition = queue._parts.partitions[0]

        def counters() -> dict[str, object]:
            slots = {
                name: getattr(partition.accounts, name)
                for name in type(partition.accounts).__slots__
            }
            return {**slots, **vars(partition), "items": None}

        before = counters()
        for item in range(1, 100):
            assert queue.produce_nowait(item)
        assert counters() == before
        assert queue._parts.loads.now() == [100, 0]


@every_loop
async def test_growth_since_the_last_round_starts_at_zero() -> None:
    balancer = Planned()
    async with rebalanced(
        balancer, interval=0.1, partitions=PartitionPolicy.adaptive()
    ) as queue:
        register(queue, {int: Recording(), str: Recording()})
        assert await queue.produce_many(range(20)) == 20
        assert await round_of(balancer, 1) == [20, 0]
        queue.add_handler(bytes, Recording())
        assert await queue.produce_many([b"1", b"2", 3]) == 3
        assert await round_of(balancer, 2) == [1, 0, 2]


# --- seconds


async def test_items_or_seconds_as_the_balancer_asks() -> None:
    """One slow item against many quick ones: the measures disagree."""
    for measure, expected in [("items", [1.0, 50.0]), ("seconds", [0.25, 0.0])]:
        balancer = Planned(measure=measure)
        async with rebalanced(balancer) as queue:
            register(queue, {int: Recording(delay=0.25), str: Recording()})
            assert await queue.produce_many([1, *(["quick"] * 50)]) == 51
            assert await round_of(balancer, 1) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    "balancer, expected",
    [(ThroughputBalancer(), [1.0, 50.0]), (CostBalancer(), [0.25, 0.0])],
)
async def test_the_balancers_measure_what_they_say(
    balancer: DrainBalancer, expected: list[float]
) -> None:
    async with rebalanced(balancer) as queue:
        register(queue, {int: Recording(delay=0.25), str: Recording()})
        assert await queue.produce_many([1, *(["quick"] * 50)]) == 51
        await asyncio.sleep(INTERVAL / 2)
        loads = [each.load for each in queue.stats().drain_tasks]
        assert loads == pytest.approx(expected, abs=0.01)


async def test_seconds_are_those_of_this_round() -> None:
    balancer = Planned(measure="seconds")
    async with rebalanced(balancer) as queue:
        register(queue, {int: Recording(delay=0.25), str: Recording(delay=0.1)})
        assert await queue.produce(1)
        assert await round_of(balancer, 1) == pytest.approx([0.25, 0], abs=0.01)
        assert await queue.produce("one")
        assert await round_of(balancer, 2) == pytest.approx([0, 0.1], abs=0.01)


async def test_seconds_are_those_of_all_that_was_asked_for() -> None:
    """What was done in an interval never is more than an interval: all look equal."""
    balancer = Planned(measure="seconds")
    async with rebalanced(
        balancer, buffer_size=2, when_full=WhenFull.DROP_NEWEST
    ) as queue:
        register(queue, {int: Recording(delay=0.1), str: Recording(delay=0.1)})
        for step in range(100):
            queue.produce_nowait(step)
            if step % 4 == 0:
                queue.produce_nowait("quarter")
            await asyncio.sleep(INTERVAL / 100)
        first, second = await round_of(balancer, 1)
        assert first / second == pytest.approx(4, rel=0.2)


async def test_failed_attempts_cost_time_as_well() -> None:
    def fail(_: list[Any]) -> BaseException:
        return ValueError()

    balancer = Planned(measure="seconds")
    async with rebalanced(
        balancer,
        retry=Retry(attempts=3, wait_initial=0.01, wait_max=0.01),
        on_error=lambda *_: None,
    ) as queue:
        failing = Recording(delay=0.1, fail_when=fail)
        register(queue, {int: failing, str: Recording()})
        assert await queue.produce(1)
        assert await round_of(balancer, 1) == pytest.approx([0.3, 0], abs=0.01)


async def test_waiting_for_a_retry_costs_no_time() -> None:
    attempts: list[int] = []

    def consume(batch: list[int]) -> None:
        attempts.append(len(batch))
        if len(attempts) == 1:
            raise RetryAfter(0.9)

    balancer = Planned(measure="seconds")
    async with rebalanced(balancer, retry=Retry(attempts=2)) as queue:
        register(queue, {int: consume, str: Recording()})
        assert await queue.produce(1)
        # What the calls themselves compute counts, in real seconds.
        assert await round_of(balancer, 1) == pytest.approx([0, 0], abs=0.5)
        assert len(attempts) == 2


async def test_computing_costs_time_where_the_loops_clock_stands_still() -> None:
    def compute(_: list[Any]) -> None:
        time.sleep(0.02)

    balancer = Planned(measure="seconds")
    async with rebalanced(balancer) as queue:
        register(queue, {int: compute, str: Recording()})
        assert await queue.produce(1)
        first, second = await round_of(balancer, 1)
        assert first >= 0.02
        assert second == 0


async def test_a_batch_from_several_partitions_is_charged_by_their_items() -> None:
    """A consumer gets one batch of all that its drain task owns."""
    balancer = Planned(measure="seconds")
    async with rebalanced(
        balancer,
        partitions=fixed(4),
        consumer=Recording(delay=0.4),
        selector=lambda item, _: item,
    ) as queue:
        # Partitions 0 and 2 have one owner.
        assert await queue.produce_many([0, 2, 2, 2]) == 4
        loads = await round_of(balancer, 1)
        assert loads == pytest.approx([0.1, 0, 0.3, 0], abs=0.01)


async def test_a_batch_is_charged_when_its_handler_returns() -> None:
    """Longer than an interval: the round in which it ends has all of its time."""
    balancer = Planned(measure="seconds")
    async with rebalanced(balancer) as queue:
        register(queue, {int: Recording(delay=1.5 * INTERVAL), str: Recording()})
        assert await queue.produce(1)
        assert await round_of(balancer, 1) == pytest.approx([0, 0], abs=0.01)
        assert await round_of(balancer, 2) == pytest.approx([1.5, 0], abs=0.01)


# --- what a balancer is given, and when it is not asked


@every_loop
async def test_a_balancer_gets_plain_values() -> None:
    """It can't change the queue by mistake."""
    balancer = Planned()
    async with rebalanced(balancer, interval=0.1, partitions=fixed(3)) as queue:
        asked = await balancer.round(1)
        assert (asked.loads, asked.owners, asked.drain_tasks) == (
            (0, 0, 0),
            (0, 1, 0),
            2,
        )
        assert type(asked.loads) is type(asked.owners) is tuple
        assert queue.is_running


@every_loop
async def test_stats_show_the_load_of_each_drain_task() -> None:
    balancer = Planned()
    async with rebalanced(balancer, interval=0.1, partitions=fixed(3)) as queue:
        register(queue, {each: Recording() for each in TYPES[:3]})
        assert await queue.produce_many([1, 2, "three", b"4", b"5"]) == 5
        assert [each.load for each in queue.stats().drain_tasks] == [4, 1]
        await round_of(balancer, 1)
        assert [each.load for each in queue.stats().drain_tasks] == [0, 0]


@every_loop
async def test_without_rebalancing_load_is_what_came_in_since_the_start() -> None:
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2), partitions=fixed(2)
    )
    async with BatchQueue("q", config) as queue:
        register(queue, {int: Recording(), str: Recording()})
        assert await queue.produce_many([1, 2, "three"]) == 3
        assert [each.load for each in queue.stats().drain_tasks] == [2, 1]


@pytest.mark.filterwarnings("ignore:rebalancing has no effect")
async def test_one_drain_task_is_not_rebalanced() -> None:
    """Neither a task nor a timer: there is nobody to move anything to."""
    balancer = Planned()
    async with rebalanced(balancer, drain_tasks=1, partitions=fixed(4)) as queue:
        await settle()
        assert [each.get_name() for each in tasks_of(queue)] == ["q: drain task 0"]
        assert live_timers() == []
        await asyncio.sleep(3 * INTERVAL)
        assert queue.stats().last_round is None
    assert balancer.asked == []


async def test_one_partition_is_not_rebalanced() -> None:
    """It has one drain task, however many were declared."""
    balancer = Planned()
    async with rebalanced(balancer, drain_tasks=4, partitions=fixed(1)) as queue:
        await asyncio.sleep(3 * INTERVAL)
        assert queue.stats().last_round is None
    assert balancer.asked == []


async def test_a_queue_on_shared_drain_tasks_is_not_rebalanced() -> None:
    balancer = Planned()
    config = BatchQueueConfig[Any](
        drain_tasks=SharedDrainTasks("io", DrainTaskPolicy.fixed(4)),
        partitions=fixed(4),
        rebalancing=Rebalancing(balancer, INTERVAL),
    )
    async with BatchQueueManager() as manager:
        queue = await manager.create("q", config)
        await turns()
        assert [each.get_name() for each in tasks_of(queue)] == ["q: drain task 0"]
        await asyncio.sleep(3 * INTERVAL)
        assert queue.stats().last_round is None
    assert balancer.asked == []
