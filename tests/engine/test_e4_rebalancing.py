"""E4: rebalancing runs on its own task, under full load, and every partition is owned.

The tests named after the original's are listed in `docs/from_skywalking.md`.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Self

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    CostBalancer,
    DrainBalancer,
    DrainTaskPolicy,
    PartitionPolicy,
    ThroughputBalancer,
    WhenFull,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import live_timers, tasks_of
from tests.engine.planned import (
    INTERVAL,
    TYPES,
    Planned,
    Shuffler,
    owners,
    rebalanced,
    register,
)
from tests.engine.until import until
from tests.support.oracle import check_accounts, check_settled
from tests.support.own_lines import own_lines
from tests.support.recording_handler import RecordingHandler
from tests.support.settle import settle

Recording = RecordingHandler[Any]
fixed = PartitionPolicy.fixed


def numbered_types(count: int) -> list[Any]:
    return [type(f"Numbered{number}", (int,), {}) for number in range(count)]


# --- the original's tests


@pytest.mark.filterwarnings("ignore:rebalancing has no effect")
async def test_rebalancing_is_ignored_with_one_drain_task() -> None:
    balancer = Planned()
    async with rebalanced(balancer, drain_tasks=1, partitions=fixed(4)) as queue:
        assert len(tasks_of(queue)) == 1
        await asyncio.sleep(2.5 * INTERVAL)
    assert balancer.asked == []
    assert queue.stats().last_round is None


async def test_rebalancing_is_ignored_without_a_balancer() -> None:
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2), partitions=fixed(4)
    )
    async with BatchQueue("q", config) as queue:
        await settle()
        assert {each.get_name() for each in tasks_of(queue)} == {
            "q: drain task 0",
            "q: drain task 1",
        }
        assert live_timers() == []
        assert queue.stats().last_round is None


@every_loop
async def test_rebalancing_loses_nothing() -> None:
    """5,000 items of 8 types, as in the original, but with moves that are certain."""
    types = numbered_types(8)
    handlers = [Recording() for _ in types]
    balancer = Shuffler()
    queue = rebalanced(
        balancer, drain_tasks=4, partitions=fixed(8), interval=0.003, buffer_size=20
    )
    async with queue:
        for item_type, handler in zip(types, handlers, strict=True):
            queue.add_handler(item_type, handler)
        for item in range(5000):
            assert await queue.produce(types[item % 8](item))
            if item % 500 == 499:
                # However fast the machine is: a round for each tenth of them.
                while balancer.rounds <= item // 500:  # noqa: ASYNC110 - its clock
                    await asyncio.sleep(0.001)
    for number, handler in enumerate(handlers):
        assert handler.handled == list(range(number, 5000, 8))
    assert check_settled(queue).handled == 5000


async def test_rebalancing_redistributes_partitions() -> None:
    """90 % of the items for two partitions of one drain task: one of them moves."""
    handlers = {each: Recording(delay=0.01) for each in TYPES}
    async with rebalanced(ThroughputBalancer(), partitions=fixed(4)) as queue:
        register(queue, handlers)
        items = [0] * 45 + [b"two"] * 45 + ["one"] * 5 + [3.0] * 5
        # In the middle between two rounds.
        await asyncio.sleep(INTERVAL / 2)
        for _ in range(3):
            assert await queue.produce_many(items) == 100
            await asyncio.sleep(INTERVAL)
        now = owners(queue)
        assert now[0] != now[2]
        assert (now.count(0), now.count(1)) == (2, 2)
        assert await queue.produce_many(items) == 100
        loads = [each.load for each in queue.stats().drain_tasks]
        assert loads == [50, 50]
    assert [len(each.handled) for each in handlers.values()] == [180, 20, 180, 20]


@every_loop
async def test_rebalancing_with_growth() -> None:
    """20 handlers are added while partitions move and items come in."""
    types = numbered_types(20)
    handlers = [Recording() for _ in types]
    balancer = Shuffler()
    queue = rebalanced(
        balancer,
        drain_tasks=4,
        partitions=PartitionPolicy.adaptive(),
        interval=0.002,
        buffer_size=50,
    )
    async with queue:
        for known, (item_type, handler) in enumerate(
            zip(types, handlers, strict=True), start=1
        ):
            queue.add_handler(item_type, handler)
            for item in range(100):
                assert await queue.produce(types[item % known](item))
            await asyncio.sleep(0.001)
            assert len(owners(queue)) == max(4, known)
        assert balancer.rounds > 3
    stats = check_settled(queue)
    assert (stats.accepted, stats.handled) == (2000, 2000)
    for handler in handlers:
        assert handler.max_concurrency == 1


@every_loop
async def test_shutdown_ends_rebalancing() -> None:
    balancer = Shuffler()
    queue = rebalanced(balancer, interval=0.002)
    await queue.start()
    await until(lambda: balancer.rounds > 2)
    assert await queue.shutdown() == []
    assert tasks_of(queue) == []
    rounds = balancer.rounds
    await asyncio.sleep(0.02)
    assert balancer.rounds == rounds


# --- a task of its own


@every_loop
async def test_rebalancing_has_a_task_of_its_own() -> None:
    async with rebalanced(Planned(), drain_tasks=3, partitions=fixed(3)) as queue:
        assert {each.get_name() for each in tasks_of(queue)} == {
            "q: drain task 0",
            "q: drain task 1",
            "q: drain task 2",
            "q: rebalancing",
        }


async def test_the_balancer_is_asked_every_interval_while_all_is_idle() -> None:
    """And nothing else happens: one timer, which is its own."""
    balancer = Planned()
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with rebalanced(balancer) as queue:
        for number in range(1, 6):
            await settle()
            assert len(live_timers()) == 1
            await balancer.round(number)
            elapsed = loop.time() - started
            assert elapsed == pytest.approx(number * INTERVAL, abs=0.001)
        last = queue.stats().last_round
        assert last is not None
        assert (last.number, last.moved) == (5, 0)


class Saturated:
    """Two drain tasks that are always at work on partitions that are always full."""

    def __init__(self, balancer: DrainBalancer, interval: float) -> None:
        self.handlers = {each: Recording(delay=0.01) for each in TYPES}
        self.queue = rebalanced(
            balancer, partitions=fixed(4), interval=interval, buffer_size=3
        )
        self._producing: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.queue.start()
        register(self.queue, self.handlers)
        for first in (0, "one", b"two", 3.0):
            # Two for each, so that somebody waits at all times.
            self._producing += [asyncio.create_task(self._fill(first)) for _ in "12"]
        await until(self.is_full)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.queue.close()
        await asyncio.gather(*self._producing)
        for handler in self.handlers.values():
            assert handler.max_concurrency == 1
        check_settled(self.queue)

    def is_full(self) -> bool:
        return all(each.waiting == 3 for each in self.queue.stats().partitions)

    def handled(self) -> list[int]:
        return [len(each.handled) for each in self.handlers.values()]

    async def _fill(self, item: object) -> None:
        while await self.queue.produce(item):
            pass


async def test_the_balancer_is_asked_every_interval_while_all_is_saturated() -> None:
    """The original's D3: no call in the first two seconds under full load."""
    balancer = Planned()
    loop = asyncio.get_running_loop()
    async with Saturated(balancer, interval=0.1):
        await balancer.round(1)
        started = loop.time()
        await balancer.round(6)
        assert loop.time() - started == pytest.approx(0.5)


async def test_a_handoff_under_full_load_takes_no_more_than_a_cycle() -> None:
    """The original's D3: it waited for its drain tasks to run out of work."""
    balancer = Planned([1, 1, 0, 0])
    loop = asyncio.get_running_loop()
    # Not a multiple of what a handler takes: in the middle of a cycle.
    async with Saturated(balancer, interval=0.105) as it:
        await balancer.round(1)
        asked = loop.time()
        await until(lambda: owners(it.queue) == [1, 1, 0, 0])
        assert any(each.waiting for each in it.queue.stats().partitions)
        # A cycle calls two handlers of 10 ms.
        assert loop.time() - asked < 0.025


async def test_no_partition_starves_under_full_load_and_constant_moves() -> None:
    """The original's D3: all but one partition stood still while it waited."""
    balancer = Shuffler()
    async with Saturated(balancer, interval=0.052) as it:
        before = it.handled()
        for _ in range(8):
            await asyncio.sleep(0.25)
            check_accounts(it.queue)
            now = it.handled()
            progress = [new - old for new, old in zip(now, before, strict=True)]
            # One drain task for all would handle 3 items of each type in 40 ms.
            assert min(progress) >= 9, progress
            before = now
        assert balancer.rounds > 20


async def test_handoffs_do_not_shift_the_rounds() -> None:
    """The next one is due an interval after the last began, not after it ended."""
    balancer = Planned(*[[1, 1, 0, 0], [0, 0, 1, 1]] * 5)
    loop = asyncio.get_running_loop()
    async with Saturated(balancer, interval=0.105):
        await balancer.round(1)
        started = loop.time()
        await balancer.round(9)
        assert loop.time() - started == pytest.approx(8 * 0.105, abs=0.02)


# --- every partition has one owner, or is in a handoff


@every_loop
async def test_partition_p_starts_with_drain_task_p_modulo_drain_tasks() -> None:
    queue = rebalanced(Planned(), drain_tasks=3, partitions=fixed(7))
    assert owners(queue) == [0, 1, 2, 0, 1, 2, 0]
    async with queue:
        assert owners(queue) == [0, 1, 2, 0, 1, 2, 0]


@every_loop
async def test_growth_keeps_owners_and_gives_the_new_ones_by_the_same_rule() -> None:
    balancer = Planned([1, 1])
    queue = rebalanced(balancer, partitions=PartitionPolicy.adaptive(), interval=0.02)
    async with queue:
        register(queue, {int: Recording(), str: Recording()})
        await balancer.round(2)
        assert owners(queue) == [1, 1]
        for item_type in numbered_types(3):
            queue.add_handler(item_type, Recording())
        assert owners(queue) == [1, 1, 0, 1, 0]


@every_loop
async def test_both_sides_of_stats_agree_on_every_owner_at_all_times() -> None:
    async with Saturated(Shuffler(), interval=0.004) as it:
        seen_in_handoff = 0
        for _ in range(200):
            stats = it.queue.stats()
            by_task = {
                partition: each.index
                for each in stats.drain_tasks
                for partition in each.partitions
            }
            by_partition = {
                each.index: each.owner
                for each in stats.partitions
                if each.owner is not None
            }
            assert by_task == by_partition
            seen_in_handoff += len(stats.partitions) - len(by_partition)
            await asyncio.sleep(0.001)
        assert seen_in_handoff > 0


@every_loop
async def test_new_owners_are_seen_in_the_next_cycle_of_a_busy_drain_task() -> None:
    """D5, the original's D4: a saturated one never looked at its list again."""
    balancer = Planned([0, 0, 0, 0])
    async with Saturated(balancer, interval=0.05) as it:
        await until(lambda: owners(it.queue) == [0, 0, 0, 0])
        before = it.handled()
        await asyncio.sleep(0.2)
        assert all(new > old for new, old in zip(it.handled(), before, strict=True))
        cycles = it.queue.stats().drain_tasks[1].cycles
        await asyncio.sleep(0.05)
        assert it.queue.stats().drain_tasks[1].cycles == cycles


# --- one summary line per round that moved something


def summaries(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.INFO and record.name == "batchqueue_async"
    ]


@every_loop
async def test_a_round_that_moves_something_logs_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Partitions moved, max/min load before and after."""
    caplog.set_level(logging.INFO, "batchqueue_async")
    balancer = Planned([0, 1, 1, 0])
    async with rebalanced(balancer, partitions=fixed(4), interval=0.05) as queue:
        register(queue, {each: Recording() for each in TYPES})
        items = [0] * 24 + ["one"] + [b"two"] * 24 + [3.0]
        assert await queue.produce_many(items) == 50
        await balancer.round(3)
    assert summaries(caplog) == ["q: moved 2 partitions, max/min load 24.00 -> 1.00"]
    assert len(caplog.records) == 1


@every_loop
async def test_the_line_is_logged_once_however_many_moved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "batchqueue_async")
    balancer = Planned([1, 0] * 20, None, [0, 1] * 20)
    async with rebalanced(balancer, partitions=fixed(40), interval=0.02):
        await balancer.round(4)
    lines = summaries(caplog)
    assert len(lines) == 2
    assert all("moved 40 partitions" in line for line in lines)


async def test_rounds_that_move_nothing_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A plan of the same owners, None, and a handoff that was called off."""
    caplog.set_level(logging.INFO, "batchqueue_async")
    gate = asyncio.Event()
    balancer = Planned([0, 1], None, [1, 1])
    async with rebalanced(balancer) as queue:
        register(queue, {int: Recording(gate=gate), str: Recording()})
        assert await queue.produce(0)
        await balancer.round(4)
        assert owners(queue) == [0, 1]
        gate.set()
    assert not own_lines(caplog.records)


# --- stats


@every_loop
async def test_the_last_round_tells_what_it_found_and_did() -> None:
    balancer = Planned([0, 1, 1, 0])
    async with rebalanced(balancer, partitions=fixed(4), interval=0.05) as queue:
        assert queue.stats().last_round is None
        register(queue, {each: Recording() for each in TYPES})
        items = [0] * 30 + ["one"] * 10 + [b"two"] * 30 + [3.0] * 10
        assert await queue.produce_many(items) == 80
        await balancer.round(1)
        await until(lambda: queue.stats().last_round)
        last = queue.stats().last_round
        assert last is not None
        assert (last.number, last.moved) == (1, 2)
        assert (last.ratio_before, last.ratio_after) == (3.0, 1.0)
        await balancer.round(2)
        last = queue.stats().last_round
        assert last is not None
        assert (last.number, last.moved) == (2, 0)
        assert (last.ratio_before, last.ratio_after) == (1.0, 1.0), "no load at all"


@every_loop
async def test_the_ratio_is_infinite_where_a_drain_task_has_no_load() -> None:
    balancer = Planned()
    async with rebalanced(balancer, interval=0.05) as queue:
        register(queue, {int: Recording(), str: Recording()})
        assert await queue.produce(1)
        await balancer.round(1)
        last = queue.stats().last_round
        assert last is not None
        assert last.ratio_before == last.ratio_after == float("inf")


async def test_moves_that_were_called_off_do_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "batchqueue_async")
    gate = asyncio.Event()
    balancer = Planned([1, 1, 0, 0])
    queue = rebalanced(balancer, partitions=fixed(4))
    async with queue:
        register(queue, {each: Recording() for each in TYPES})
        queue.add_handler(int, Recording(gate=gate))
        assert await queue.produce_many([0, *["one"] * 3, *[3.0] * 3]) == 7
        await asyncio.sleep(2.5 * INTERVAL)
        # The handler at the gate kept partition 0.
        assert owners(queue) == [0, 1, 0, 0]
        gate.set()
    assert summaries(caplog) == ["q: moved 1 partition, max/min load 6.00 -> 1.33"]


async def test_moves_that_do_harm_without_those_called_off_are_undone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "batchqueue_async")
    gate = asyncio.Event()
    balancer = Planned([1, 0, 1, 0])
    queue = rebalanced(balancer, partitions=fixed(4))
    async with queue:
        register(queue, {int: Recording(gate=gate), str: Recording()})
        assert await queue.produce_many([0, *["one"] * 3]) == 4
        await asyncio.sleep(1.5 * INTERVAL)
        assert owners(queue) == [None, 0, None, 0]
        # The handler at the gate keeps partitions 0 and 2, so it would have all.
        await asyncio.sleep(INTERVAL)
        assert owners(queue) in ([0, 1, 0, 1], [0, None, 0, None])
        gate.set()
        await until(lambda: owners(queue) == [0, 1, 0, 1])
    assert summaries(caplog) == []
    assert queue.stats().last_round is not None
    check_settled(queue)


async def test_the_numbers_stay_after_shutdown() -> None:
    async with rebalanced(Planned([1, 0])) as queue:
        await asyncio.sleep(1.5 * INTERVAL)
    last = queue.stats().last_round
    assert last is not None
    assert (last.number, last.moved) == (1, 2)
    assert owners(queue) == [1, 0]


# --- what it is good for


class Sink:
    """Takes a fixed time for each item of a type, and knows how busy it was."""

    def __init__(self, costs: dict[type, float]) -> None:
        self.costs = costs
        self.handled = 0

    async def consume(self, batch: Sequence[object]) -> None:
        await asyncio.sleep(self.costs[type(batch[0])] * len(batch))
        self.handled += len(batch)


class Mix:
    """Items of eight types, by fixed shares, in an order that always repeats."""

    def __init__(self, shares: Sequence[int]) -> None:
        self.types = numbered_types(len(shares))
        self._shares = shares

    def items(self) -> Iterator[Any]:
        """All types a little at a time, so that each window has the same shares."""
        credit = [0.0] * len(self._shares)
        while True:
            for number, share in enumerate(self._shares):
                credit[number] += share / sum(self._shares)
            most = max(range(len(credit)), key=credit.__getitem__)
            credit[most] -= 1
            yield self.types[most](0)


async def throughput(
    balancer: DrainBalancer, shares: Sequence[int], costs: Sequence[float]
) -> float:
    """Return items per second once rounds had time to act."""
    mix = Mix(shares)
    sink = Sink(dict(zip(mix.types, costs, strict=True)))
    queue = rebalanced(
        balancer, drain_tasks=2, partitions=fixed(8), buffer_size=5, interval=1.0
    )
    items = mix.items()

    async def produce() -> None:
        while await queue.produce(next(items)):
            pass

    async with queue:
        for item_type in mix.types:
            queue.add_handler(item_type, sink)
        producing = [asyncio.create_task(produce()) for _ in range(4)]
        await asyncio.sleep(4.5)
        before = sink.handled
        await asyncio.sleep(3.0)
        rate = (sink.handled - before) / 3.0
        assert await queue.shutdown() == []
        await asyncio.gather(*producing)
    check_settled(queue)
    return rate


async def test_skewed_items_get_the_throughput_of_an_even_split() -> None:
    """Even numbers are the hot ones, and start with one drain task."""
    shares, costs = [40, 10] * 4, [0.01] * 8
    static = await throughput(Planned(), shares, costs)
    balanced = await throughput(ThroughputBalancer(), shares, costs)
    assert static == pytest.approx(125, rel=0.15), "80 % are for one of two"
    assert balanced > 0.95 * 200


async def test_costly_items_need_the_balancer_that_weighs_cost() -> None:
    """As many items each; those of even numbers cost four times as much."""
    shares, costs = [1] * 8, [0.016, 0.004] * 4
    by_items = await throughput(ThroughputBalancer(), shares, costs)
    by_cost = await throughput(CostBalancer(), shares, costs)
    assert by_items == pytest.approx(125, rel=0.15), "nothing moved"
    assert by_cost > 0.95 * 200


async def test_drop_newest_is_balanced_by_what_it_refuses() -> None:
    """By what it accepts, a full partition would look no busier than it can be."""
    balancer = ThroughputBalancer()
    queue = rebalanced(
        balancer,
        partitions=fixed(4),
        buffer_size=5,
        when_full=WhenFull.DROP_NEWEST,
    )
    async with queue:
        register(queue, {each: Recording(delay=0.05) for each in TYPES})
        for _ in range(150):
            for item in (0, 0, 0, 0, "one", b"two", b"two", b"two", b"two", 3.0):
                queue.produce_nowait(item)
            await asyncio.sleep(0.01)
        now = owners(queue)
        assert now[0] != now[2]
    assert check_settled(queue).rejected > 0
