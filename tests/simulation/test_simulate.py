"""`simulate`: the account is exact, and times are those of the real engine."""

import asyncio
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    SharedDrainTasks,
    WhenFull,
    by_key,
    round_robin,
)
from batchqueue_async.simulation import Simulation, simulate
from batchqueue_async.testing import run_virtual
from tests.support.oracle import check_accounts


def every(seconds: float, count: int, item: object = "x") -> list[tuple[float, object]]:
    return [(place * seconds, item) for place in range(count)]


def at_once(count: int) -> list[tuple[float, object]]:
    return [(0.0, "x")] * count


def consumer(**settings: object) -> BatchQueueConfig[object]:
    return BatchQueueConfig[object](consumer=lambda _: None, **settings)  # type: ignore[arg-type]


def account_of(seen: Simulation) -> tuple[int, int, int]:
    check_accounts(seen.stats)
    assert seen.stats.accepted + seen.stats.rejected == seen.arrivals
    return seen.handled, seen.failed, seen.lost


def test_a_lone_item_is_as_old_as_its_call_took() -> None:
    seen = simulate(consumer(), every(1.0, 10), lambda _: 0.25)
    assert account_of(seen) == (10, 0, 0)
    assert seen.p50 == seen.p99 == pytest.approx(0.25, abs=1e-4)
    assert (seen.batches, seen.mean_batch) == (10, 1.0)
    (use,) = seen.use
    assert use == pytest.approx(2.5 / seen.seconds, abs=1e-3)
    assert seen.seconds == pytest.approx(9.25, abs=1e-3)
    assert seen.last_seconds == pytest.approx(0.25, abs=1e-3)


def test_no_item_is_handled_before_it_came() -> None:
    """The plan of a sink that takes no time had a p50 of -0.000."""
    seen = simulate(consumer(), every(1 / 3, 100), lambda _: 0.0)
    assert seen.ages[0] == 0.0


def test_linger_and_max_batch_are_the_engine_s() -> None:
    seen = simulate(consumer(linger=1.0, max_batch=5), every(0.3, 20), lambda _: 0.0)
    # The oldest of a batch waits for a second at most.
    assert max(seen.ages) == pytest.approx(1.0, abs=0.01)
    assert seen.batches == 5
    full = simulate(consumer(linger=60.0, max_batch=5), at_once(20), lambda _: 1.0)
    assert full.mean_batch == 5


@pytest.mark.parametrize(
    "when_full, expected",
    [
        (WhenFull.WAIT, (100, 0, 0)),
        (WhenFull.DROP_NEWEST, (10, 0, 90)),
        (WhenFull.DROP_OLDEST, (10, 0, 90)),
    ],
)
def test_a_burst_waits_or_is_lost(
    when_full: WhenFull, expected: tuple[int, int, int]
) -> None:
    config = consumer(buffer_size=10, when_full=when_full)
    seen = simulate(config, at_once(100), lambda _: 0.1)
    assert account_of(seen) == expected
    assert seen.peak_waiting == 10
    assert seen.peak_producers == (90 if when_full is WhenFull.WAIT else 0)


def test_an_outage_is_ridden_out_by_retries() -> None:
    def cost(_: list[object]) -> float:
        if 2 <= asyncio.get_running_loop().time() < 7:
            raise OSError
        return 0.01

    patient = consumer(retry=Retry(attempts=100, wait_initial=0.5, wait_max=0.5))
    seen = simulate(patient, every(0.1, 100), cost)
    assert account_of(seen) == (100, 0, 0)
    assert 4.5 < max(seen.ages) < 6
    assert seen.peak_waiting > 40
    once = simulate(consumer(), every(0.1, 100), cost)
    handled, failed, lost = account_of(once)
    assert handled + failed == 100
    assert failed == pytest.approx(50, abs=2)
    assert lost == 0


def test_what_a_shutdown_would_leave() -> None:
    config = consumer(max_batch=1, shutdown_timeout=5.0)
    seen = simulate(config, at_once(100), lambda _: 1.0)
    assert seen.left == pytest.approx(95, abs=1)
    assert account_of(seen)[0] + seen.left == 100
    assert seen.last_seconds == pytest.approx(5, abs=0.5)


def test_producers_that_wait_have_part_of_the_shutdown_s_time() -> None:
    config = consumer(buffer_size=2, max_batch=1, shutdown_timeout=5.0)
    seen = simulate(config, at_once(10), lambda _: 3.0)
    account_of(seen)
    assert (seen.handled, seen.last_seconds) == (1, 5.0)


def test_producers_that_had_to_wait_are_not_counted_beside_later_ones() -> None:
    bursts = [(at, "x") for at in (0.0, 100.0) for _ in range(10)]
    seen = simulate(consumer(buffer_size=2, max_batch=1), bursts, lambda _: 1.0)
    assert seen.peak_producers == 8
    assert account_of(seen) == (20, 0, 0)


class Cheap:
    pass


class Dear(Cheap):
    pass


def mixed() -> Iterator[tuple[float, object]]:
    for place in range(200):
        yield place * 0.05, Dear() if place % 10 == 0 else Cheap()


def test_types_have_handlers_of_their_own() -> None:
    batches: list[set[type]] = []

    def cost(batch: list[object]) -> float:
        batches.append(set(map(type, batch)))
        return 0.5 if Dear in batches[-1] else 0.001

    config = BatchQueueConfig[object](
        drain_tasks=DrainTaskPolicy.fixed(2), partitions=PartitionPolicy.adaptive()
    )
    seen = simulate(config, mixed(), cost, weights={Dear: 1.0})
    assert account_of(seen) == (200, 0, 0)
    assert batches.count({Cheap, Dear}) == 0
    # The cheap ones do not wait for the dear ones.
    assert seen.p50 < 0.01


@pytest.mark.parametrize(
    "selector", [by_key(len), round_robin, lambda item, count: len(item) % count]
)
def test_each_selector_sees_the_items(selector: object) -> None:
    config = consumer(selector=selector, partitions=PartitionPolicy.fixed(4))
    items = [(0.1 * place, "x" * (place % 4)) for place in range(40)]
    seen = simulate(config, items, lambda _: 0.0)
    assert [each.handled for each in seen.stats.partitions] == [10] * 4


def test_shared_drain_tasks_are_its_own() -> None:
    shared = SharedDrainTasks("io", DrainTaskPolicy.fixed(4))
    alone, sharing = consumer(max_batch=3), consumer(max_batch=3, drain_tasks=shared)
    load = [*every(0.1, 10), *((1.0, "x") for _ in range(50))]
    alike = [simulate(each, load, lambda _: 0.05) for each in (alone, sharing)]
    assert [account_of(each) for each in alike] == [(60, 0, 0)] * 2
    assert alike[0].ages == alike[1].ages


def test_it_is_the_real_queue_s_answer() -> None:
    """The same load by hand, in virtual time."""
    config = consumer(max_batch=7, linger=0.4)
    arrivals = every(0.13, 60)
    ages: list[float] = []

    async def by_hand() -> None:
        loop = asyncio.get_running_loop()

        async def consume(batch: list[float]) -> None:
            await asyncio.sleep(0.05 + 0.01 * len(batch))
            ages.extend(loop.time() - at for at in batch)

        real = BatchQueueConfig[float](consumer=consume, max_batch=7, linger=0.4)
        async with BatchQueue("q", real) as queue:
            for at, _ in arrivals:
                await asyncio.sleep(at - loop.time())
                assert queue.offer(at)

    run_virtual(by_hand())
    seen = simulate(config, arrivals, lambda batch: 0.05 + 0.01 * len(batch))
    assert list(seen.ages) == pytest.approx(sorted(ages), abs=1e-3)


def test_it_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def cost(_: list[object]) -> float:
        raise OSError

    seen = simulate(consumer(), every(0.1, 20), cost)
    assert seen.failed == 20
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    # Of real queues everything is logged again.
    assert logging.getLogger("batchqueue_async").filters == []


def test_ages_by_part() -> None:
    seen = simulate(consumer(max_batch=1), at_once(100), lambda _: 1.0)
    assert seen.handled < 100
    assert seen.age(0.0) == pytest.approx(1)
    assert seen.age(1.0) == seen.ages[-1]
    with pytest.raises(ValueError, match="part must be from 0 to 1, got 2"):
        seen.age(2)
    wrong: Any = "0.9"
    with pytest.raises(TypeError, match=r"a number from 0 to 1, got '0\.9'$"):
        seen.age(wrong)
    nothing = simulate(consumer(), [], lambda _: 1.0)
    assert (nothing.p99, nothing.mean_batch, nothing.arrivals) == (0.0, 0.0, 0)


def test_bad_input_is_told() -> None:
    with pytest.raises(ValueError, match="must not go back in time, got 1 after 2"):
        simulate(consumer(), [(2, "x"), (1, "x")], lambda _: 0.0)
    with pytest.raises(TypeError, match="config must be a BatchQueueConfig"):
        simulate("fast", [], lambda _: 0.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="handler_cost must"):
        simulate(consumer(), [], 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="what handler_cost returns must be >= 0"):
        simulate(consumer(), at_once(1), lambda _: -1)
    with pytest.raises(TypeError, match="what handler_cost returns must be"):
        simulate(consumer(), at_once(1), lambda _: "1")  # type: ignore[arg-type, return-value]
    # At once, not after the last arrival.
    endless = ((float(second), "x") for second in itertools.count())
    with pytest.raises(ValueError, match="what handler_cost returns must be >= 0"):
        simulate(consumer(), endless, lambda _: -1)


async def test_it_may_be_called_on_a_loop() -> None:
    seen = simulate(consumer(), every(1.0, 3), lambda _: 0.5)
    assert seen.handled == 3


def test_sizes_are_those_of_the_items() -> None:
    config = consumer(size_of=len, max_batch_bytes=30.0, buffer_bytes=90.0, linger=9.0)
    seen = simulate(config, [(0.0, "x" * 10)] * 9, lambda _: 0.1)
    assert account_of(seen) == (9, 0, 0)
    assert seen.batches == 3
    # Of texts the length is the size where nothing else is said.
    config = consumer(max_batch_bytes=30.0, linger=9.0)
    assert simulate(config, [(0.0, "x" * 10)] * 9, lambda _: 0.1).batches == 3


@pytest.mark.parametrize(
    "arrivals, told",
    [
        (None, "arrivals must be an iterable of pairs: a second, an item, got None"),
        ([1.0], "an arrival must be a pair: a second, an item, got 1.0"),
        ([("a", 1)], "an arrival must be a pair: a second, an item"),
        ([(float("inf"), 1)], "the second of an arrival must be finite, got inf"),
        ([(float("nan"), 1)], "the second of an arrival must be finite, got nan"),
    ],
)
def test_arrivals_that_are_none_are_refused(arrivals: Any, told: str) -> None:  # noqa: ANN401
    with pytest.raises((TypeError, ValueError), match=told):
        simulate(consumer(), arrivals, lambda _: 0.1)


def test_weights_are_by_type() -> None:
    with pytest.raises(TypeError, match="weights must be a dict of types and weights"):
        simulate(consumer(), [], lambda _: 0.1, weights=[int])  # type: ignore[arg-type]


def test_days_pass_at_once() -> None:
    """Also those of a load that was recorded in other units, by mistake."""
    for began in (10**12, 10**18):
        arrivals = [(began, "x"), (began * 1.5, "x")]
        seen = simulate(consumer(shutdown_timeout=None), arrivals, lambda _: 0.1)
        assert account_of(seen) == (2, 0, 0)
