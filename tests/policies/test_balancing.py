"""When a balancer moves partitions, and when it lets them be."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._policies.balancing import (
    CostBalancer,
    DrainBalancer,
    Rebalancing,
    ThroughputBalancer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BALANCERS = [ThroughputBalancer(), CostBalancer()]


def sums(
    loads: Sequence[float], owners: Sequence[int], drain_tasks: int
) -> list[float]:
    """Return the load of each drain task."""
    totals = [0.0] * drain_tasks
    for load, owner in zip(loads, owners, strict=True):
        totals[owner] += load
    return totals


@pytest.mark.parametrize("balancer", BALANCERS)
@pytest.mark.parametrize(
    "loads, owners, drain_tasks",
    [
        pytest.param([114, 100], [0, 1], 2, id="ratio below the threshold"),
        pytest.param([60, 54, 50, 50], [0, 0, 1, 1], 2, id="sums below it"),
        pytest.param([0, 0, 0], [0, 1, 0], 2, id="no load at all"),
        pytest.param([60, 90], [0, 1], 2, id="only labels would change"),
        pytest.param([100], [0], 2, id="one partition, one idle drain task"),
        pytest.param([5, 6, 7], [0, 0, 0], 1, id="one drain task"),
        pytest.param([100, 50, 50], [0, 1, 1], 3, id="the largest load stays"),
        pytest.param([0.1, 0.2, 0.3], [0, 0, 1], 3, id="only drift would change"),
    ],
)
def test_partitions_stay_where_moving_gains_nothing(
    balancer: DrainBalancer, loads: list[float], owners: list[int], drain_tasks: int
) -> None:
    """None: below the threshold, without load, or with no lower largest load."""
    assert balancer.assign(loads, owners, drain_tasks) is None


@pytest.mark.parametrize("balancer", BALANCERS)
@pytest.mark.parametrize(
    "loads, owners, drain_tasks, largest, moved",
    [
        pytest.param([24, 1, 24, 1], [0, 1, 0, 1], 2, 25, 2, id="one exchange"),
        pytest.param([60, 55, 50, 50], [0, 0, 1, 1], 2, 110, 2, id="at the threshold"),
        pytest.param([5, 5, 0], [0, 0, 1], 2, 5, 1, id="an idle drain task"),
        pytest.param([1] * 8, [0] * 8, 4, 2, 6, id="all on one"),
    ],
)
def test_partitions_move_where_the_largest_load_sinks(  # noqa: PLR0913, PLR0917
    balancer: DrainBalancer,
    loads: list[float],
    owners: list[int],
    drain_tasks: int,
    largest: float,
    moved: int,
) -> None:
    """The plan reaches the largest load with so many moves."""
    plan = balancer.assign(loads, owners, drain_tasks)
    assert plan is not None
    assert max(sums(loads, plan, drain_tasks)) == largest
    assert sum(a != b for a, b in zip(owners, plan, strict=True)) == moved


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=20)
)
def test_a_plan_always_lowers_the_largest_load(pairs: list[tuple[int, int]]) -> None:
    """Whatever it returns is worth moving for, and below the threshold it is None."""
    loads, owners = [each[0] for each in pairs], [each[1] for each in pairs]
    now = sums(loads, owners, 4)
    plan = ThroughputBalancer().assign(loads, owners, 4)
    if max(now) < 1.15 * min(now):
        assert plan is None
    if plan is not None:
        assert max(sums(loads, plan, 4)) < max(now)
        assert ThroughputBalancer(1).assign(loads, plan, 4) in (None, plan)


def test_the_threshold_can_be_chosen() -> None:
    """A higher one leaves more imbalance alone."""
    loads, owners = [30, 30, 20, 20], [0, 0, 1, 1]
    assert ThroughputBalancer(skip_below=1.6).assign(loads, owners, 2) is None
    assert CostBalancer(skip_below=1.6).assign(loads, owners, 2) is None
    assert ThroughputBalancer(skip_below=1.0).assign(loads, owners, 2) is not None


@pytest.mark.parametrize("kind", [ThroughputBalancer, CostBalancer])
def test_a_threshold_below_one_is_refused(
    kind: type[ThroughputBalancer | CostBalancer],
) -> None:
    """The largest load is never below the smallest."""
    with pytest.raises(ValueError, match=r"^skip_below must be >= 1, got 0.9$"):
        kind(skip_below=0.9)


def test_loads_and_owners_belong_together() -> None:
    """One owner per partition."""
    with pytest.raises(ValueError, match=r"zip\(\)"):
        ThroughputBalancer().assign([1, 2, 3], [0, 1], 2)


def test_a_plan_for_many_partitions_reaches_the_even_split() -> None:
    """500 skewed partitions on 8 drain tasks come out within one percent."""
    loads = [100_000 / (rank + 50) for rank in range(500)]
    random.Random(3).shuffle(loads)
    owners = [index % 8 for index in range(500)]
    plan = ThroughputBalancer(1).assign(loads, owners, 8)
    assert plan is not None
    assert max(sums(loads, plan, 8)) < 1.01 * sum(loads) / 8


class Still:
    """A balancer in as few lines as a user needs; it says no measure."""

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> None:
        """Leave all as it is."""


class Measured(Still):
    """A balancer whose measure is given."""

    def __init__(self, measure: str) -> None:
        self.measure = measure


@pytest.mark.parametrize(
    "balancer, measure",
    [
        (ThroughputBalancer(), "items"),
        (CostBalancer(), "seconds"),
        (Still(), "items"),
        (Measured("seconds"), "seconds"),
    ],
)
def test_a_balancer_says_what_it_weighs(balancer: DrainBalancer, measure: str) -> None:
    """Items, unless it asks for seconds."""
    assert Rebalancing(balancer).measure == measure


def test_rebalancing_is_every_ten_seconds_by_items() -> None:
    """The default is the original's production setting."""
    assert Rebalancing() == Rebalancing(ThroughputBalancer(1.15), 10.0)
    assert Rebalancing() != Rebalancing(CostBalancer())


@pytest.mark.parametrize(
    "settings, error, message",
    [
        ({"interval": 0}, ValueError, r"^interval must be > 0, got 0$"),
        ({"interval": float("nan")}, ValueError, r"^interval must be finite, got nan$"),
        (
            {"balancer": None},
            TypeError,
            r"^balancer must be an object with an assign method, got None$",
        ),
        (
            {"balancer": Still},
            TypeError,
            r"^balancer must be an object with an assign method, got <class .*Still'>$",
        ),
        (
            {"balancer": Measured("bytes")},
            ValueError,
            r"^balancer\.measure must be \"items\" or \"seconds\", got 'bytes'$",
        ),
    ],
)
def test_wrong_rebalancing_is_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    """A balancer has `assign`, and the interval is positive."""
    with pytest.raises(error, match=message):
        Rebalancing(**settings)
