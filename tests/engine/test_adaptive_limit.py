"""The size of batches that is found by trying: told what calls took, no clock."""

import random
from collections.abc import Callable
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async import PartialFailure, RetryAfter
from batchqueue_async._engine.handlers.adaptive_max_batch import (
    PAID_BACK,
    SPREAD,
    START,
    AdaptiveLimit,
)

MOST = 10_000
Cost = Callable[[int], float]


def costs(call: float, item: float, square: float = 0.0) -> Cost:
    return lambda size: call + item * size + square * size * size


def run(limit: AdaptiveLimit, cost: Cost, calls: int) -> tuple[float, list[int]]:
    """Serve full batches; returns items per second, and the limits on the way."""
    items, seconds, limits = 0, 0.0, []
    for _ in range(calls):
        size = limit.size
        took = cost(size)
        limit.called(size, took, None)
        items, seconds = items + size, seconds + took
        limits.append(limit.limit)
    return items / seconds, limits


def best_fixed(cost: Cost) -> float:
    """Items per second with the best of a sweep."""
    sizes = [1 << step for step in range(14)]
    return max(size / cost(size) for size in sizes)


@pytest.mark.parametrize(
    "call, item, square",
    [
        (0.002, 1e-5, 0.0),
        (0.002, 1e-4, 0.0),
        (0.05, 1e-3, 0.0),
        (0.005, 0.0, 0.0),
        (0.002, 1e-5, 1e-8),
        (0.0, 1e-3, 0.0),
    ],
)
def test_it_reaches_nine_tenths_of_the_best_fixed_size(
    call: float, item: float, square: float
) -> None:
    limit, cost = AdaptiveLimit(MOST), costs(call, item, square)
    run(limit, cost, 200)
    rate, _ = run(limit, cost, 800)
    assert rate > 0.9 * best_fixed(cost)


def test_noise_and_outliers_do_not_lead_it_astray() -> None:
    rng, exact = random.Random(1), costs(0.002, 1e-5)
    reached = []
    for _ in range(10):
        limit = AdaptiveLimit(MOST)

        def noisy(size: int) -> float:
            outlier = 10 if rng.random() < 0.01 else 1
            return exact(size) * exp(rng.gauss(0, 0.2)) * outlier

        _, limits = run(limit, noisy, 1_000)
        reached += [size / exact(size) for size in limits[300:]]
    assert sum(reached) / len(reached) > 0.9 * best_fixed(exact)


def test_it_stops_where_a_larger_batch_brings_little() -> None:
    # Not at the most: each doubling beyond some 31 * call / item brings less than 2 %.
    limit = AdaptiveLimit(MOST)
    run(limit, costs(0.001, 0.001), 1_000)
    assert 8 < limit.limit < 64


@given(
    call=st.floats(1e-4, 1.0),
    item=st.floats(1e-6, 1e-2),
    most=st.integers(1, 100_000),
)
def test_it_settles_within_a_factor_of_two(call: float, item: float, most: int) -> None:
    limit = AdaptiveLimit(most)
    run(limit, costs(call, item), 1_500)
    _, limits = run(limit, costs(call, item), 300)
    assert max(limits) <= 2 * min(limits) + 1


answers = st.sampled_from(
    [None, None, None, RetryAfter(1.0), OSError(), PartialFailure([0])]
)


@given(
    most=st.integers(1, 2_000),
    calls=st.lists(
        st.tuples(st.booleans(), st.integers(1, 3_000), st.floats(0, 1e6), answers),
        max_size=200,
    ),
)
def test_it_stays_within_its_bounds_whatever_comes(
    most: int, calls: list[tuple[bool, int, float, BaseException | None]]
) -> None:
    limit = AdaptiveLimit(most)
    for is_full, size, seconds, error in calls:
        limit.called(limit.size if is_full else size, seconds, error)
        assert 1 <= limit.size <= most
        assert 1 <= limit.limit <= most
        # The limit that is told is rounded, and so is the size.
        assert limit.size <= SPREAD * (limit.limit + 0.5) + 0.5


def test_without_load_it_does_not_grow() -> None:
    limit = AdaptiveLimit(MOST)
    for _ in range(1_000):
        limit.called(limit.size - 1, 0.01, None)
    assert limit.limit == START
    assert limit.stats().reason == "start"


def test_a_pause_that_is_asked_for_halves_it_once() -> None:
    limit = AdaptiveLimit(MOST)
    run(limit, costs(0.002, 1e-5), 500)
    before = limit.size
    limit.called(before, 0.001, RetryAfter(1.0))
    assert limit.limit == round(before / 2)
    told = limit.stats()
    assert (told.reason, told.throttled, told.failed) == ("throttled", 1, 0)
    # These were on their way already, with the size of before.
    for _ in range(3):
        limit.called(before, 0.001, RetryAfter(1.0))
    assert limit.limit == round(before / 2)


def test_it_stays_below_what_is_refused() -> None:
    limit, refused = AdaptiveLimit(MOST), 0
    for _ in range(2_000):
        if limit.size > 200:
            refused += 1
            limit.called(limit.size, 0.001, RetryAfter(1.0))
        else:
            limit.called(limit.size, 0.002 + 1e-5 * limit.size, None)
    assert 150 < limit.limit <= 200
    assert refused < 15


def test_calls_that_are_counted_do_not_make_batches_tiny() -> None:
    """A server that allows ten calls a second, however many items these have."""
    limit, now, allowed_at, items = AdaptiveLimit(MOST), 0.0, 0.0, 0
    for _ in range(2_000):
        size = limit.size
        if now < allowed_at:
            pause = allowed_at - now
            limit.called(size, 0.001, RetryAfter(pause))
            now += 0.001 + pause
        else:
            allowed_at = now + 0.1
            took = 0.002 + 1e-5 * size
            limit.called(size, took, None)
            now, items = now + took, items + size
    assert limit.limit > MOST / 2
    assert items / now > MOST / 2 * 10


def test_after_an_outage_it_comes_back() -> None:
    limit, cost = AdaptiveLimit(MOST), costs(0.002, 1e-5)
    run(limit, cost, 500)
    before = limit.limit
    for _ in range(20):
        limit.called(limit.size, 0.01, OSError())
    assert limit.stats().failed > 1
    assert limit.limit < before / 4
    run(limit, cost, 500)
    assert limit.limit > before / 2


def test_a_server_that_gets_slower_gets_less_at_first() -> None:
    limit = AdaptiveLimit(MOST)
    run(limit, costs(0.002, 1e-4), 1_000)
    before = limit.limit
    _, limits = run(limit, costs(0.02, 1e-3), 200)
    assert min(limits) <= before / 2 + 1
    assert limit.stats().slower == 1
    # Where larger batches are worth as much as before, it is found out again.
    run(limit, costs(0.02, 1e-3), 2_000)
    assert limit.limit > 0.6 * before


@pytest.mark.parametrize("error", [OSError(), RetryAfter(0.01)], ids=["error", "429"])
@pytest.mark.parametrize("part", [0.005, 0.02, 0.05])
def test_failures_at_random_do_not_make_batches_tiny(
    part: float, error: Exception
) -> None:
    """A network loses some calls, however many items these have."""
    limit, cost, rng = AdaptiveLimit(MOST), costs(0.002, 1e-5), random.Random(1)
    reached = []
    for _ in range(10_000):
        is_lost = rng.random() < part
        limit.called(limit.size, cost(limit.size), error if is_lost else None)
        reached.append(limit.limit / cost(limit.limit))
    assert sum(reached[1_000:]) / len(reached[1_000:]) > 0.8 * best_fixed(cost)


def test_one_failure_halves_it_until_the_next_call() -> None:
    limit = AdaptiveLimit(MOST)
    run(limit, costs(0.002, 1e-5), 500)
    before = limit.stats()
    limit.called(limit.size, 0.001, OSError())
    # What is tried again is cut to that.
    assert limit.size < 0.6 * before.max_batch
    assert limit.stats().reason == "failed"
    limit.called(limit.size, 0.001, None)
    after = limit.stats()
    assert (after.max_batch, after.reason) == (before.max_batch, before.reason)
    assert after.failed == 1


@pytest.mark.parametrize("times", [(1, 10), (1, 1.5), (10, 1), (1, 1, 10), (1, 5, 5)])
def test_calls_that_take_longer_now_and_then_do_not_lead_it_astray(
    times: tuple[float, ...],
) -> None:
    """Each second flush of a database syncs its files, say."""
    limit, cost = AdaptiveLimit(MOST), costs(0.002, 1e-5)
    for call in range(2_000):
        taken = cost(limit.size) * times[call % len(times)]
        limit.called(limit.size, taken, None)
    assert limit.limit / cost(limit.limit) > 0.9 * best_fixed(cost)


def test_a_server_that_throttles_again_and_again_is_used_again_each_time() -> None:
    limit, cost, pause = AdaptiveLimit(MOST), costs(0.02, 1e-4), 0.1
    for _ in range(6):
        for most in (100, MOST):
            seconds = 0.0
            while seconds < 2 * PAID_BACK * pause:
                size = limit.size
                refused = size > most
                seconds += pause if refused else cost(size)
                limit.called(size, cost(size), RetryAfter(pause) if refused else None)
                assert not refused or most == 100
            allowed = min(most / cost(most), best_fixed(cost))
            assert limit.limit / cost(limit.limit) > 0.85 * allowed


def test_a_size_that_is_taken_again_is_soon_found() -> None:
    """The limit grows slowly at first beyond what was refused, then quickly."""
    limit, cost = AdaptiveLimit(MOST), costs(0.002, 1e-5)
    for call in range(700):
        is_refused = call < 300 and limit.size > 50
        limit.called(limit.size, cost(limit.size), OSError() if is_refused else None)
    assert limit.limit > 2_000


def test_a_partial_failure_says_nothing_of_the_size() -> None:
    limit = AdaptiveLimit(MOST)
    for _ in range(100):
        limit.called(limit.size, 0.01, PartialFailure([0]))
    assert limit.limit > START
    limit.called(limit.size, 0.01, PartialFailure([0], retry_after=1.0))
    assert limit.stats().throttled == 1
