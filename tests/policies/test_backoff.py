"""Naps double from the shortest to the longest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._policies.idle_backoff import IdleBackoff
from batchqueue_async._policies.retry import doubled

SECONDS = st.floats(1e-300, 1e300)


def test_naps_double_up_to_the_longest() -> None:
    """The first nap after data is the shortest, not its double."""
    idle = IdleBackoff()
    naps = [idle.delay(n) for n in range(8)]
    assert naps == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.050, 0.050]


@pytest.mark.parametrize("empty_cycles", [1_000, 10**9, 10**400])
def test_a_huge_count_does_not_overflow(empty_cycles: int) -> None:
    """A queue may idle for ever."""
    assert IdleBackoff().delay(empty_cycles) == 0.050


@given(SECONDS, SECONDS, st.integers(0, 5_000))
def test_naps_never_shrink_and_stay_in_bounds(
    one: float, other: float, empty_cycles: int
) -> None:
    """shortest <= delay(n) <= delay(n + 1) <= longest, for any pair of bounds."""
    idle = IdleBackoff(min(one, other), max(one, other))
    nap, longer_nap = idle.delay(empty_cycles), idle.delay(empty_cycles + 1)
    assert idle.shortest <= nap <= longer_nap <= idle.longest


@given(SECONDS, SECONDS, st.integers(0, 900))
def test_a_nap_is_exactly_the_smaller_of_both(
    one: float, other: float, empty_cycles: int
) -> None:
    """delay(n) is min(shortest * 2**n, longest), to the last bit."""
    idle = IdleBackoff(min(one, other), max(one, other))
    product = idle.shortest * 2.0**empty_cycles
    assert idle.delay(empty_cycles) == min(product, idle.longest)


def test_doubling_nothing_is_nothing() -> None:
    """A first wait of zero never grows."""
    assert doubled(0.0, 10_000, 5.0) == 0.0


def test_a_negative_count_is_refused() -> None:
    """There are no fewer than zero empty cycles."""
    with pytest.raises(ValueError, match=r"^doublings must be >= 0, got -1$"):
        IdleBackoff().delay(-1)


@pytest.mark.parametrize(
    "shortest, longest, message",
    [
        (0, 1, r"^shortest must be > 0, got 0$"),
        (-0.5, 1, r"^shortest must be > 0, got -0.5$"),
        (float("nan"), 1, r"^shortest must be finite, got nan$"),
        (0.1, float("inf"), r"^longest must be finite, got inf$"),
        (0.2, 0.1, r"^longest must be >= shortest \(0.2\), got 0.1$"),
    ],
)
def test_wrong_bounds_are_refused(
    shortest: float, longest: float, message: str
) -> None:
    """Both bounds are finite, positive and in order."""
    with pytest.raises(ValueError, match=message):
        IdleBackoff(shortest, longest)
