"""The assignment with the largest total gain."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._policies.lpt import best_assignment


def total(gains: list[list[int]], columns: tuple[int, ...] | list[int]) -> int:
    """Return what an assignment gains."""
    return sum(row[column] for row, column in zip(gains, columns, strict=True))


@st.composite
def square(draw: st.DrawFn) -> list[list[int]]:
    """Draw a square of small gains, so that many are equal."""
    size = draw(st.integers(1, 6))
    row = st.lists(st.integers(0, 9), min_size=size, max_size=size)
    return draw(st.lists(row, min_size=size, max_size=size))


@given(square())
def test_no_permutation_gains_more(gains: list[list[int]]) -> None:
    """It is exact: as good as trying them all."""
    columns = best_assignment(gains)
    assert sorted(columns) == list(range(len(gains)))
    best = max(total(gains, each) for each in permutations(range(len(gains))))
    assert total(gains, columns) == best


def test_the_largest_gain_first_would_lose() -> None:
    """Taking 10 first leaves 0: together 10, where 9 + 8 is possible."""
    assert best_assignment([[10, 9], [8, 0]]) == [1, 0]


@pytest.mark.parametrize("size", [1, 2, 17, 64])
def test_rows_that_agree_get_their_own_column(size: int) -> None:
    """Where each row has a favourite of its own, it gets it."""
    gains = [[int(row == column) for column in range(size)] for row in range(size)]
    assert best_assignment(gains) == list(range(size))
