"""How many partitions a policy resolves to."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._policies.partitions import PartitionPolicy
from batchqueue_async._policies.sizing import exact_weight

if TYPE_CHECKING:
    from collections.abc import Callable

fixed = PartitionPolicy.fixed
per_drain_task = PartitionPolicy.per_drain_task
adaptive = PartitionPolicy.adaptive


@pytest.mark.parametrize(
    "policy, drain_tasks, handlers, expected",
    [
        (fixed(1), 8, 500, 1),
        (fixed(16), 0, 0, 16),
        (per_drain_task(2), 3, 0, 6),
        (per_drain_task(3), 8, 1_000, 24),
        (per_drain_task(2), 0, 0, 1),
        (adaptive(), 8, 0, 8),
        (adaptive(), 0, 0, 1),
        (adaptive(), 8, 1, 1),
        (adaptive(), 8, 50, 50),
        (adaptive(), 8, 100, 100),
        (adaptive(), 8, 200, 200),
        (adaptive(), 8, 201, 200),
        (adaptive(), 8, 202, 201),
        (adaptive(), 8, 500, 350),
        (adaptive(), 8, 1_000, 600),
        (adaptive(), 8, 2_000, 1_100),
        (adaptive(50), 8, 100, 100),
        (adaptive(50), 8, 400, 400),
        (adaptive(50), 8, 600, 500),
        (adaptive(), 4, 600, 350),
        (adaptive(), 0, 3, 2),
        (adaptive(), 8, 642 * 1.0 + 1247 * 0.05, 452),
        (adaptive(), 8, 100 * 0.05, 5),
        (adaptive(), 8, 0.05, 1),
    ],
)
def test_a_policy_resolves_to_the_originals_numbers(
    policy: PartitionPolicy, drain_tasks: int, handlers: float, expected: int
) -> None:
    """One partition per handler up to the threshold, then one per two."""
    assert policy.resolve(drain_tasks, handlers) == expected


@pytest.mark.parametrize("count", [20, 40, 60, 2_000])
def test_a_float_sum_that_drifted_counts_as_exact(count: int) -> None:
    """Twenty handlers of weight 0.05 are one handler, however they are summed."""
    drifted = 0.0
    for _ in range(count):
        drifted += 0.05
    exact = sum(map(exact_weight, [0.05] * count), Fraction())
    assert adaptive(1_000).resolve(8, drifted) == count // 20
    assert adaptive(1_000).resolve(8, exact) == count // 20


def test_what_drift_leaves_of_removed_handlers_counts_as_none() -> None:
    """Adding and removing weights gives the number of partitions without them."""
    left = 0.0
    for weight in [0.1] * 10 + [-0.1] * 10:
        left += weight
    assert left != 0
    assert adaptive().resolve(8, left) == 8
    assert adaptive().resolve(8, -left) == 8


@given(st.integers(1, 100), st.integers(1, 64), st.floats(1, 1e6), st.floats(0, 1e3))
def test_more_handlers_never_mean_fewer_partitions(
    multiplier: int, drain_tasks: int, handlers: float, more: float
) -> None:
    """Growth never has to take a partition away."""
    policy = adaptive(multiplier)
    now = policy.resolve(drain_tasks, handlers)
    assert 1 <= now <= policy.resolve(drain_tasks, handlers + more)


def test_only_an_adaptive_policy_grows() -> None:
    """What keeps keys in place is a fixed number."""
    policies = [fixed(4), per_drain_task(2), adaptive()]
    assert [policy.grows for policy in policies] == [False, False, True]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: fixed(0), r"^n must be >= 1, got 0$"),
        (lambda: fixed(-3), r"^n must be >= 1, got -3$"),
        (lambda: per_drain_task(0), r"^m must be >= 1, got 0$"),
        (lambda: adaptive(0), r"^multiplier must be >= 1, got 0$"),
    ],
)
def test_a_wrong_number_is_refused(
    make: Callable[[], PartitionPolicy], message: str
) -> None:
    """All counts are at least one."""
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "policy, text",
    [
        (fixed(4), "PartitionPolicy.fixed(4)"),
        (per_drain_task(2), "PartitionPolicy.per_drain_task(2)"),
        (adaptive(), "PartitionPolicy.adaptive(multiplier=25)"),
    ],
)
def test_a_policy_is_a_value(policy: PartitionPolicy, text: str) -> None:
    """It is shown as the call that made it, which makes an equal one."""
    twin = eval(text, {"PartitionPolicy": PartitionPolicy})
    assert repr(policy) == text
    assert twin == policy
    assert hash(twin) == hash(policy)
    assert isinstance(policy, PartitionPolicy)
