"""How often and after which waits a batch is tried again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._policies.retry import Retry


def test_the_default_tries_once() -> None:
    """At most once, unless somebody asks for more."""
    assert Retry() == Retry(1, 0.1, 5.0, None, (Exception,), split=False)


@pytest.mark.parametrize(
    "attempt, longest",
    [(2, 0.1), (3, 0.2), (4, 0.4), (5, 0.8), (8, 5.0), (10**6, 5.0)],
)
def test_the_longest_wait_doubles_up_to_the_limit(attempt: int, longest: float) -> None:
    """The first retry waits at most `wait_initial`."""
    retry = Retry(attempts=10)
    assert retry.wait_before(attempt, 0.0) == 0
    assert retry.wait_before(attempt, 0.5) == pytest.approx(longest / 2)
    assert retry.wait_before(attempt, 1.0) == pytest.approx(longest)


@given(st.integers(2, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_wait_stays_in_bounds(attempt: int, random: float) -> None:
    """From nothing up to `wait_max`: full jitter."""
    assert 0 <= Retry().wait_before(attempt, random) <= 5.0


def test_no_wait_is_allowed() -> None:
    """A retry may follow at once."""
    retry = Retry(attempts=3, wait_initial=0, wait_max=0)
    assert retry.wait_before(3, 0.9) == 0


def test_the_first_attempt_has_no_wait() -> None:
    """Waits come before retries only."""
    with pytest.raises(ValueError, match=r"^attempt must be >= 2, got 1$"):
        Retry().wait_before(1, 0.5)


@pytest.mark.parametrize(
    "settings, error, message",
    [
        ({"attempts": 0}, ValueError, r"^attempts must be >= 1, got 0$"),
        ({"attempts": 1.5}, TypeError, r"^attempts must be an int, got 1.5$"),
        ({"wait_initial": -1}, ValueError, r"^wait_initial must be >= 0, got -1$"),
        (
            {"wait_initial": 2, "wait_max": 1},
            ValueError,
            r"^wait_max must be >= wait_initial \(2\), got 1$",
        ),
        (
            {"wait_max": float("inf")},
            ValueError,
            r"^wait_max must be finite, got inf$",
        ),
        ({"deadline": 0}, ValueError, r"^deadline must be > 0, got 0$"),
        ({"deadline": "1s"}, TypeError, r"^deadline must be a number, got '1s'$"),
        (
            {"retry_on": OSError},
            TypeError,
            r"^retry_on must be a tuple of Exception classes, got <class 'OSError'>$",
        ),
        (
            {"retry_on": (OSError("x"),)},
            TypeError,
            r"^retry_on must be a tuple of Exception classes, got \(OSError\('x'\),\)$",
        ),
        (
            {"retry_on": (asyncio.CancelledError,)},
            TypeError,
            r"^retry_on must be a tuple of Exception classes, got .*CancelledError",
        ),
        ({"split": 1}, TypeError, r"^split must be a bool, got 1$"),
    ],
)
def test_wrong_settings_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    """A cancellation, above all, is never retried."""
    with pytest.raises(error, match=message):
        Retry(**settings)
