"""`measure` and `Cost`: what a handler's calls take, told to a simulation."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    round_robin,
)
from batchqueue_async.simulation import Cost, Sample, Simulation, measure, simulate
from batchqueue_async.testing import run_virtual

CONFIG = BatchQueueConfig[object](consumer=lambda _: None, max_batch=10)


def seconds_of(cost: Cost, *sizes: int, times: int = 1) -> list[float]:
    """Return the mean of what calls of these sizes take, each after the other."""

    async def ask() -> list[float]:
        means = []
        for size in sizes:
            took = []
            for _ in range(times):
                took.append(cost([None] * size))
                await asyncio.sleep(took[-1])
            means.append(fmean(took))
        return means

    return run_virtual(ask())


def test_between_and_beyond_what_was_measured_it_goes_straight() -> None:
    cost = Cost([Sample(10, 0.2), Sample(20, 0.3), Sample(40, 0.5)])
    expected = [0.2, 0.25, 0.3, 0.5, 1.1]
    assert seconds_of(cost, 10, 15, 20, 40, 100) == pytest.approx(expected)
    assert cost.call == pytest.approx(0.1)
    assert cost.item == pytest.approx(0.01)
    # No call was smaller: it takes no less than the smallest.
    assert seconds_of(cost, 1) == [0.2]


def test_one_size_is_enough() -> None:
    cost = Cost([Sample(10, 0.2)])
    assert seconds_of(cost, 1, 10, 1_000) == [0.2, 0.2, 0.2]
    assert (cost.call, cost.item) == (0.2, 0.0)


def test_calls_differ_as_the_measured_ones_did() -> None:
    cost = Cost([Sample(10, 0.1)] * 9 + [Sample(10, 1.1)])
    (mean,) = seconds_of(cost, 10, times=2_000)
    assert mean == pytest.approx(0.2, rel=0.15)
    # A mean alone knows no call of a second, nor what waits behind it.
    load = [(place * 0.03, "x") for place in range(1_000)]
    seen = simulate(CONFIG, load, cost)
    flat = simulate(CONFIG, load, lambda _: 0.2)
    assert seen.p99 > 2 * flat.p99


def test_each_simulation_has_the_same_calls() -> None:
    cost = Cost([Sample(10, 0.1), Sample(10, 0.2), Sample(10, 0.4)])
    load = [(place * 0.03, "x") for place in range(300)]
    first, second = simulate(CONFIG, load, cost), simulate(CONFIG, load, cost)
    assert list(first.ages) == list(second.ages)


def test_simulations_of_one_cost_know_nothing_of_each_other() -> None:
    """One that began at the second at which the last had ended went on with its calls.

    A call of that one's was taken for one that still ran.
    """
    samples = [Sample(10, 0.1), Sample(10, 0.2), Sample(10, 9.0, at_once=2)]
    bursts = [[(second, "x")] * 10 for second in (0.0, 0.0, 5.0)]
    cost = Cost(samples)
    seen = [simulate(CONFIG, each, cost).p99 for each in bursts]
    assert seen == [simulate(CONFIG, each, Cost(samples)).p99 for each in bursts]


def test_simulations_of_one_cost_may_run_side_by_side() -> None:
    cost = Cost([Sample(10, 0.1), Sample(10, 0.2), Sample(10, 0.4)])
    load = [(place * 0.03, "x") for place in range(300)]
    alone = simulate(CONFIG, load, cost)
    inner: list[Simulation] = []

    def beside(batch: Sequence[object]) -> float:
        if len(inner) < 9:
            with ThreadPoolExecutor(1) as thread:
                inner.append(thread.submit(simulate, CONFIG, load, cost).result())
        return cost(batch)

    outer = simulate(CONFIG, load, beside)
    assert {tuple(each.ages) for each in (*inner, outer)} == {tuple(alone.ages)}


def test_calls_that_run_together_take_as_long_as_those_did() -> None:
    samples = [Sample(10, 0.1), Sample(10, 0.3, at_once=2)]
    two = BatchQueueConfig[object](
        consumer=lambda _: None,
        max_batch=10,
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=round_robin,
    )
    load = [(0.0, "x")] * 1_000
    alone = simulate(two, load, Cost(samples[:1]))
    together = simulate(two, load, Cost(samples))
    assert together.seconds > 1.5 * alone.seconds
    # One after the other, they have ended when the next one begins.
    apart = simulate(two, [(float(place), "x") for place in range(5)], Cost(samples))
    assert max(apart.ages) == pytest.approx(0.1, abs=1e-5)


async def test_a_handler_is_measured_as_it_is_called() -> None:
    sizes, inside, most = [], 0, 0

    async def consume(batch: list[str]) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        sizes.append(len(batch))
        await asyncio.sleep(0)
        inside -= 1

    cost = await measure(consume, ["a", "b"], sizes=(5, 1), calls=3, at_once=4)
    assert most == 4
    # One that is not counted, and three times 1, 2 and 4 together of both sizes.
    assert len(sizes) == 1 + 3 * (1 + 2 + 4) * 2
    assert {each.size for each in cost.samples} == {1, 5}
    assert {each.at_once for each in cost.samples} == {1, 2, 4}
    assert min(each.seconds for each in cost.samples) > 0


async def test_objects_and_sync_handlers_are_measured() -> None:
    class Store:
        def __init__(self) -> None:
            self.got: list[object] = []

        def consume(self, batch: list[object]) -> None:
            self.got += batch

    store = Store()
    await measure(store, [7], sizes=[3], calls=2)
    assert store.got == [7] * 9


async def test_bad_input_is_told() -> None:
    with pytest.raises(ValueError, match="samples must be at least one"):
        Cost([])
    with pytest.raises(ValueError, match="items must be at least one"):
        await measure(print, [])
    with pytest.raises(ValueError, match="sizes must be at least one"):
        await measure(print, [1], sizes=[])
    with pytest.raises(ValueError, match="sizes must be >= 1, got 0"):
        await measure(print, [1], sizes=[0])
    with pytest.raises(ValueError, match="calls must be >= 1, got 0"):
        await measure(print, [1], calls=0)
    with pytest.raises(ValueError, match="at_once must be >= 1, got 0"):
        await measure(print, [1], at_once=0)
    with pytest.raises(TypeError, match="handler must be callable"):
        await measure("store", [1])  # type: ignore[arg-type]


async def test_a_handler_is_opened_before_and_closed_at_the_end() -> None:
    calls: list[str] = []

    class Handler:
        async def on_open(self) -> None:
            calls.append("open")

        async def consume(self, batch: list[int]) -> None:
            calls.append("consume")

        def on_close(self) -> None:
            calls.append("close")

    await measure(Handler(), [1], sizes=[1], calls=1)
    assert calls == ["open", "consume", "consume", "close"]


@pytest.mark.parametrize(
    "size, seconds, at_once, told",
    [
        ("a", 1.0, 1, "size must be an int, got 'a'"),
        (1, -1.0, 1, "seconds must be >= 0, got -1.0"),
        (1, float("nan"), 1, "seconds must be finite, got nan"),
        (1, 1.0, 0, "at_once must be >= 1, got 0"),
    ],
)
def test_a_sample_that_was_not_measured_is_refused(
    size: int, seconds: float, at_once: int, told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        Sample(size, seconds, at_once)


def test_a_cost_is_made_of_samples() -> None:
    with pytest.raises(TypeError, match="samples must be of Sample alone, got 1"):
        Cost([1])  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", [None, 5])
def test_a_cost_needs_several_samples(wrong: Any) -> None:  # noqa: ANN401 - any
    with pytest.raises(TypeError, match=r"^samples must be an iterable of Sample"):
        Cost(wrong)
