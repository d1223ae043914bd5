"""E2: what a queue does with plans, good and wrong.

The plans themselves are tested in `tests/policies`: `test_lpt.py`,
`test_fewest_moves.py`, `test_balancing.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    CostBalancer,
    DrainBalancer,
    PartitionPolicy,
    ThroughputBalancer,
)
from benchmarks import plan as planning
from benchmarks.opcodes import Instructions
from tests.engine.every_loop import every_loop
from tests.engine.planned import (
    INTERVAL,
    TYPES,
    Planned,
    owners,
    rebalanced,
    register,
)
from tests.support.oracle import check_settled
from tests.support.own_lines import own_lines
from tests.support.recording_handler import RecordingHandler

Recording = RecordingHandler[Any]
fixed = PartitionPolicy.fixed


# --- the library's own


@pytest.mark.slow
@pytest.mark.parametrize("balancer", [ThroughputBalancer(1), CostBalancer(1)])
@pytest.mark.parametrize("shape", ["different", "equal", "many equal"])
def test_a_plan_takes_some_hundred_instructions_per_partition(
    balancer: DrainBalancer, shape: str
) -> None:
    """For 500 partitions that is half a millisecond: `benchmarks.rebalancing`."""
    small = instructions_of(balancer, *to_plan(shape, 500))
    assert small < 500 * 250
    assert instructions_of(balancer, *to_plan(shape, 4 * 500)) < 4.4 * small


def to_plan(shape: str, count: int) -> tuple[list[float], list[int]]:
    if shape == "equal":
        return [1.0] * count, [0] * count
    loads = planning.loads(count)
    if shape == "many equal":
        loads = [float(int(load) % 7) for load in loads]
    return loads, planning.owners(count)


def instructions_of(
    balancer: DrainBalancer, loads: Sequence[float], current: Sequence[int]
) -> int:
    instructions = Instructions()
    with instructions.counted():
        assert balancer.assign(loads, current, planning.DRAIN_TASKS) is not None
    return sum(instructions.by_line().values())


async def test_a_balanced_queue_moves_nothing() -> None:
    """The original's D9: {60, 90} on one drain task each swapped their owners."""
    async with rebalanced(ThroughputBalancer()) as queue:
        register(queue, {int: Recording(), str: Recording()})
        await asyncio.sleep(INTERVAL / 2)
        for _ in range(3):
            assert await queue.produce_many([0] * 60 + ["one"] * 90) == 150
            await asyncio.sleep(INTERVAL)
            assert owners(queue) == [0, 1]
            assert moved(queue) == 0


async def test_an_unbalanced_queue_moves_no_more_than_it_must() -> None:
    async with rebalanced(ThroughputBalancer(), partitions=fixed(4)) as queue:
        register(queue, {each: Recording() for each in TYPES})
        # 48 : 2 becomes 25 : 25 by one exchange.
        items = [0] * 24 + ["one"] + [b"two"] * 24 + [3.0]
        await asyncio.sleep(INTERVAL / 2)
        for _ in range(3):
            assert await queue.produce_many(items) == 50
            await asyncio.sleep(INTERVAL)
        now = owners(queue)
        assert (now.count(0), now.count(1)) == (2, 2)
        assert now[0] != now[2]
        assert sum(new != old for new, old in zip(now, [0, 1, 0, 1], strict=True)) == 2


async def test_partitions_without_load_stay_with_their_owner() -> None:
    async with rebalanced(ThroughputBalancer(), partitions=fixed(4)) as queue:
        register(queue, {each: Recording() for each in TYPES})
        assert await queue.produce_many([0] * 10 + [b"two"] * 10) == 20
        await asyncio.sleep(1.1 * INTERVAL)
        now = owners(queue)
        assert now[0] != now[2]
        assert (now[1], now[3]) == (1, 1)


async def test_below_the_threshold_everything_stays() -> None:
    async with rebalanced(ThroughputBalancer(), partitions=fixed(4)) as queue:
        register(queue, {each: Recording() for each in TYPES})
        items = [0] * 60 + ["one"] * 50 + [b"two"] * 54 + [3.0] * 50
        assert await queue.produce_many(items) == 214
        await asyncio.sleep(1.1 * INTERVAL)
        assert owners(queue) == [0, 1, 0, 1]
        last = queue.stats().last_round
        assert last is not None
        assert (last.moved, last.ratio_before) == (0, 1.14)


# --- wrong ones (the original's D11: it lost a partition to owner 99)


@every_loop
@pytest.mark.parametrize(
    "plan, complaint",
    [
        ([1], "its length must be 2, got 1"),
        ([], "its length must be 2, got 0"),
        ([1, 0, 1], "its length must be 2, got 3"),
        ([1, 2], "owner of partition 1 must be an int from 0 to 1, got 2"),
        ([99, 0], "owner of partition 0 must be an int from 0 to 1, got 99"),
        ([-1, 0], "owner of partition 0 must be an int from 0 to 1, got -1"),
        ([1, 0.0], "owner of partition 1 must be an int from 0 to 1, got 0.0"),
        ([True, 0], "owner of partition 0 must be an int from 0 to 1, got True"),
        ([1, None], "owner of partition 1 must be an int from 0 to 1, got None"),
        (["1", 0], "owner of partition 0 must be an int from 0 to 1, got '1'"),
        ("10", ""),
        (5, ""),
        (iter([1, 0]), ""),
        pytest.param({1: 0, 0: 1}, ""),
        pytest.param({0, 1}, ""),
    ],
    ids=lambda value: repr(value).split(" object at ")[0],
)
async def test_a_wrong_plan_is_logged_and_ignored(
    plan: object, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is moved, the log says what was wrong, and the next plan counts."""
    await check_ignored(plan, complaint, caplog)


@every_loop
@pytest.mark.parametrize(
    "make_error",
    [
        ValueError,
        StopIteration,
        ExceptionGroup,
        pytest.param(
            asyncio.CancelledError,
        ),
        pytest.param(
            BaseException,
        ),
    ],
)
async def test_a_failing_balancer_is_logged_and_moves_nothing(
    make_error: Callable[..., BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    is_group = make_error is ExceptionGroup
    error = make_error("no", [ValueError()]) if is_group else make_error("no")
    await check_ignored(error, make_error.__name__, caplog)


async def check_ignored(
    plan: object, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    balancer = Planned(plan, [1, 0], on_demand=True)
    async with rebalanced(balancer, interval=0.02) as queue:
        handlers = [Recording(), Recording()]
        register(queue, {int: handlers[0], str: handlers[1]})
        async with asyncio.timeout(30):
            await balancer.round(1)
            assert owners(queue) == [0, 1]
            (record,) = own_lines(caplog.records)
            assert record.levelno == logging.ERROR
            assert record.name == "batchqueue_async"
            assert record.getMessage().startswith("q: ")
            assert "Planned" in record.getMessage()
            assert complaint in caplog.text
            assert await queue.produce_many([1, "one"]) == 2
            await queue.flush()
            # The next plan is a good one.
            await balancer.round(3)
        assert owners(queue) == [1, 0]
        assert await queue.produce_many([2, "two"]) == 2
    assert [handler.items for handler in handlers] == [[1, 2], ["one", "two"]]
    assert len(caplog.records) == 1
    check_settled(queue)


@every_loop
async def test_a_round_that_failed_counts_as_a_round_without_moves() -> None:
    balancer = Planned(ValueError(), [7, 7])
    async with rebalanced(balancer, interval=0.02) as queue:
        await balancer.round(2)
        last = queue.stats().last_round
        assert last is not None
        assert (last.number, last.moved) == (2, 0)


@every_loop
async def test_a_plan_may_be_any_sequence_of_ints() -> None:
    for plan in ((1, 0), [1, 0], range(1, -1, -1), bytes([1, 0])):
        balancer = Planned(plan)
        async with rebalanced(balancer, interval=0.02) as queue:
            await balancer.round(2)
            assert owners(queue) == [1, 0]


@every_loop
async def test_none_and_the_same_owners_move_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "batchqueue_async")
    balancer = Planned(None, [0, 1])
    async with rebalanced(balancer, interval=0.02) as queue:
        await balancer.round(3)
        assert owners(queue) == [0, 1]
        assert moved(queue) == 0
    assert not own_lines(caplog.records)


@every_loop
async def test_a_plan_that_its_balancer_changes_later_stays_as_it_was() -> None:
    """The queue keeps no reference to it."""
    plan = [1, 0]
    balancer = Planned(plan)
    async with rebalanced(balancer, interval=0.02) as queue:
        await balancer.round(1)
        plan[:] = [9, 9]
        await balancer.round(2)
        assert owners(queue) == [1, 0]


def moved(queue: BatchQueue[Any]) -> int:
    last = queue.stats().last_round
    assert last is not None
    return last.moved
