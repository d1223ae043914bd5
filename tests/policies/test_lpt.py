"""LPT plans: bounds, validity and the fewest moves."""

from __future__ import annotations

from itertools import permutations, product
from typing import TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchqueue_async._policies.lpt import lpt_plan

Round: TypeAlias = tuple[list[float], list[int], int]


def rounds(
    most_partitions: int = 30,
    most_drain_tasks: int = 6,
    load: st.SearchStrategy[float] | None = None,
) -> st.SearchStrategy[Round]:
    """Draw loads, owners and the number of drain tasks."""
    if load is None:
        load = st.one_of(st.integers(0, 5), st.floats(0, 1e6))

    @st.composite
    def build(draw: st.DrawFn) -> Round:
        drain_tasks = draw(st.integers(1, most_drain_tasks))
        pair = st.tuples(load, st.integers(0, drain_tasks - 1))
        pairs = draw(st.lists(pair, min_size=1, max_size=most_partitions))
        return [each[0] for each in pairs], [each[1] for each in pairs], drain_tasks

    return build()


def largest(loads: list[float], owners: list[int], drain_tasks: int) -> float:
    """Return the load of the most loaded drain task."""
    sums = [0.0] * drain_tasks
    for load, owner in zip(loads, owners, strict=True):
        sums[owner] += load
    return max(sums)


def moves(before: list[int], after: list[int]) -> int:
    """Return how many partitions change their owner."""
    return sum(old != new for old, new in zip(before, after, strict=True))


@given(rounds())
def test_a_plan_is_valid_and_partitions_without_load_stay(drawn: Round) -> None:
    """An owner in range for every partition; no load, no move."""
    loads, owners, drain_tasks = drawn
    plan = lpt_plan(loads, owners, drain_tasks)
    assert len(plan) == len(loads)
    assert all(0 <= owner < drain_tasks for owner in plan)
    for load, before, after in zip(loads, owners, plan, strict=True):
        assert load > 0 or before == after


@given(rounds(7, 3, st.integers(0, 50)))
def test_the_largest_sum_is_within_grahams_bound(drawn: Round) -> None:
    """At most 4/3 - 1/(3m) of the optimum, found by trying every plan."""
    loads, owners, drain_tasks = drawn
    plans = product(range(drain_tasks), repeat=len(loads))
    optimum = min(largest(loads, list(plan), drain_tasks) for plan in plans)
    bound = (4 / 3 - 1 / (3 * drain_tasks)) * optimum
    plan = lpt_plan(loads, owners, drain_tasks)
    assert largest(loads, plan, drain_tasks) <= bound * (1 + 1e-9)


@given(rounds(12, 5))
def test_no_other_labels_need_fewer_moves(drawn: Round) -> None:
    """Whoever takes whichever group: trying all permutations finds nothing better."""
    loads, owners, drain_tasks = drawn
    plan = lpt_plan(loads, owners, drain_tasks)
    for labels in permutations(range(drain_tasks)):
        relabelled = [
            labels[owner] if load else owner
            for load, owner in zip(loads, plan, strict=True)
        ]
        assert moves(owners, plan) <= moves(owners, relabelled)


@given(rounds(6, 3, st.integers(1, 2)))
def test_no_exchange_of_equal_loads_needs_fewer_moves(drawn: Round) -> None:
    """Nor does any plan whose groups hold the same loads, under any labels."""
    loads, owners, drain_tasks = drawn
    plan = lpt_plan(loads, owners, drain_tasks)

    def contents(owners_of: list[int]) -> list[list[float]]:
        pairs = list(zip(loads, owners_of, strict=True))
        return sorted(
            sorted(load for load, owner in pairs if owner == task)
            for task in range(drain_tasks)
        )

    wanted = contents(plan)
    for other in map(list, product(range(drain_tasks), repeat=len(loads))):
        if contents(other) == wanted:
            assert moves(owners, plan) <= moves(owners, other)


@given(rounds())
def test_a_plan_is_stable(drawn: Round) -> None:
    """Planning again from the plan, with distinct loads, moves nothing."""
    loads, owners, drain_tasks = drawn
    loaded = [load for load in loads if load]
    assume(len(set(loaded)) == len(loaded))
    plan = lpt_plan(loads, owners, drain_tasks)
    assert largest(loads, lpt_plan(loads, plan, drain_tasks), drain_tasks) == (
        pytest.approx(largest(loads, plan, drain_tasks))
    )


@pytest.mark.parametrize(
    "loads, owners, drain_tasks, expected",
    [
        ([60, 90], [0, 1], 2, [0, 1]),
        ([90, 60], [1, 0], 2, [1, 0]),
        ([24, 1, 24, 1], [0, 1, 0, 1], 2, [0, 1, 1, 0]),
        ([5, 4, 3, 3, 3], [1, 0, 1, 0, 1], 2, [1, 0, 1, 0, 0]),
        ([6, 4, 2, 1, 1.5], [0, 1, 1, 0, 1], 2, [0, 1, 1, 0, 1]),
        ([7], [2], 3, [2]),
        ([0, 0, 9], [1, 1, 1], 2, [1, 1, 1]),
    ],
)
def test_known_plans(
    loads: list[float], owners: list[int], drain_tasks: int, expected: list[int]
) -> None:
    """Groups keep their owners where the original would swap their labels."""
    plan = lpt_plan(loads, owners, drain_tasks)
    assert largest(loads, plan, drain_tasks) == largest(loads, expected, drain_tasks)
    assert moves(owners, plan) == moves(owners, expected)


def test_equal_loads_move_only_what_must() -> None:
    """60 and 40 equal partitions become 50 and 50 with ten moves."""
    owners = [0] * 60 + [1] * 40
    plan = lpt_plan([1] * 100, owners, 2)
    assert plan.count(0) == 50
    assert moves(owners, plan) == 10
