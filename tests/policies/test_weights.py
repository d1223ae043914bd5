"""Weights add up as they are written."""

from __future__ import annotations

import functools
import operator
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._policies.sizing import exact_weight


@pytest.mark.parametrize(
    "weight, exact",
    [
        (1, Fraction(1)),
        (1.0, Fraction(1)),
        (0.05, Fraction(1, 20)),
        (1e-07, Fraction(1, 10**7)),
        (2.5e3, Fraction(2500)),
    ],
)
def test_a_weight_is_the_decimal_that_was_written(
    weight: float, exact: Fraction
) -> None:
    """0.05 is one twentieth, not the nearest binary fraction."""
    assert exact_weight(weight) == exact


def test_twenty_times_a_twentieth_is_one() -> None:
    """The sum does not drift, as it does with floats."""
    assert functools.reduce(operator.add, [0.05] * 20) > 1
    assert sum(map(exact_weight, [0.05] * 20)) == 1


@given(st.lists(st.floats(1e-6, 1e6), max_size=30), st.integers())
def test_adding_then_removing_leaves_exactly_nothing(
    weights: list[float], seed: int
) -> None:
    """In whatever order they go."""
    total = sum(map(exact_weight, weights), Fraction())
    random.Random(seed).shuffle(weights)
    for weight in weights:
        total -= exact_weight(weight)
    assert total == 0


def test_a_float_subclass_counts_by_its_value() -> None:
    """A number type with a repr of its own is read all the same."""

    class Wrapped(float):
        def __repr__(self) -> str:
            return f"Wrapped({float(self)})"

    assert exact_weight(Wrapped(0.05)) == Fraction(1, 20)


@pytest.mark.parametrize(
    "weight, error, message",
    [
        (0, ValueError, r"^weight must be > 0, got 0$"),
        (-1.5, ValueError, r"^weight must be > 0, got -1.5$"),
        (float("nan"), ValueError, r"^weight must be finite, got nan$"),
        ("1", TypeError, r"^weight must be a number, got '1'$"),
        (True, TypeError, r"^weight must be a number, got True$"),
    ],
)
def test_a_wrong_weight_is_refused(
    weight: float, error: type[Exception], message: str
) -> None:
    """A weight is a finite number above zero."""
    with pytest.raises(error, match=message):
        exact_weight(weight)
