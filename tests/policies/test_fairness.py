"""How `fair_by` is declared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async._policies.selectors import UNIT, FairSelector, fair_by


def tenant_of(item: tuple[str, int]) -> str:
    return item[0]


def test_its_defaults_are_equal_weights_and_rounds_of_a_hundred() -> None:
    assert fair_by(tenant_of) == FairSelector(tenant_of, None, 100)
    assert fair_by(tenant_of) != fair_by(tenant_of, quantum=10)
    assert repr(fair_by(tenant_of)) == "fair_by(tenant_of, quantum=100)"
    assert repr(fair_by(str, weight=len)) == "fair_by(str, weight=len, quantum=100)"


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (
            {"key": "tenant"},
            TypeError,
            r"^key must be callable with one argument, an item, got 'tenant'$",
        ),
        ({"weight": 2}, TypeError, r"^weight must be callable.*, got 2$"),
        ({"quantum": 0}, ValueError, r"^quantum must be >= 1, got 0$"),
        ({"quantum": 1.5}, TypeError, r"^quantum must be an int, got 1\.5$"),
        ({"quantum": True}, TypeError, r"^quantum must be an int, got True$"),
    ],
)
def test_a_wrong_argument_is_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fair_by(**{"key": tenant_of, **arguments})


@pytest.mark.parametrize(
    "key", ["a", 3, b"b", None, 2.5, math.nan, ("a", math.nan), frozenset({1})]
)
def test_a_key_has_one_partition_in_range(key: Any) -> None:  # noqa: ANN401 - any key
    selector: Callable[[Any, int], int] = fair_by(lambda _: key)
    assert 0 <= selector(0, 7) == selector(1, 7) < 7


def test_weights_are_exact_enough_to_be_summed() -> None:
    selector = fair_by(tenant_of, weight=lambda _: 0.1)
    assert selector.units_of("a") == round(0.1 * UNIT)
    assert fair_by(tenant_of).units_of("a") == UNIT
