"""How many drain tasks are found beside a server that throttles for a while, and why.

Servers are told as items per second and refusals by the number of calls at once.
"""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from batchqueue_async._engine.lifecycle.adaptive_drain_tasks import (
    LONGEST_PAUSE,
    AdaptiveCount,
)

MOST = 24
SETTLED = LONGEST_PAUSE + 10
"""Rounds in which it has come to what a server that has changed takes."""
MEASURED = 80

# What a server handles per second, and whether it refuses, by calls and capacity.
Server = Callable[[int, int], tuple[float, bool]]


def with_a_hard_limit(calls: int, capacity: int) -> tuple[float, bool]:
    """Those beyond the limit are refused, and cost others nothing."""
    return 100.0 * min(calls, capacity), calls > capacity


def slower_beyond_a_knee(calls: int, capacity: int) -> tuple[float, bool]:
    """Latency grows as calls do: no more is handled."""
    return 100.0 * min(calls, capacity), False


def with_a_rate_limit(calls: int, capacity: int) -> tuple[float, bool]:
    """Calls per second are limited, between two numbers of drain tasks."""
    most = 100.0 * capacity - 40.0
    return min(100.0 * calls, most), 100.0 * calls > most


def congested_beyond_a_knee(calls: int, capacity: int) -> tuple[float, bool]:
    """A database: the more calls beyond its knee, the less is handled."""
    return 100.0 * calls * min(1.0, capacity / calls) ** 2, False


SERVERS = [
    with_a_hard_limit,
    slower_beyond_a_knee,
    with_a_rate_limit,
    congested_beyond_a_knee,
]


def rounds(
    count: AdaptiveCount, server: Server, capacity: int, number: int, seed: int
) -> tuple[list[int], list[float]]:
    """Let busy rounds pass; returns what was at work in them, and their rates."""
    noise = random.Random(seed)
    counts, rates = [], []
    for _ in range(number):
        rate, is_throttled = server(count.count, capacity)
        rate *= noise.uniform(0.97, 1.03)
        counts.append(count.count)
        rates.append(rate)
        count.round(rate, 1.0, is_throttled=is_throttled)
    return counts, rates


@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("throttled_to", [2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(5))
def test_it_reaches_nine_tenths_of_the_best_before_while_and_after_throttling(
    server: Server, throttled_to: int, seed: int
) -> None:
    count = AdaptiveCount(1, MOST)
    for capacity in (8, throttled_to, 8):
        rounds(count, server, capacity, SETTLED, seed)
        _, rates = rounds(count, server, capacity, MEASURED, seed)
        best = max(server(calls, capacity)[0] for calls in range(1, MOST + 1))
        assert sum(rates) / len(rates) > 0.9 * best


@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.__name__)
def test_it_does_not_swing_where_a_server_stays_as_it_is(server: Server) -> None:
    count = AdaptiveCount(1, MOST)
    rounds(count, server, 8, SETTLED, 1)
    counts, _ = rounds(count, server, 8, 200, 1)
    assert min(counts) >= 6
    assert max(counts) <= 11
    # A try and its end are two changes.
    changes = sum(one != other for one, other in pairwise(counts))
    assert changes < 50


def test_what_lies_below_a_refusal_is_found_by_halving() -> None:
    count = AdaptiveCount(1, 64)
    rounds(count, with_a_hard_limit, 64, SETTLED, 1)
    counts, _ = rounds(count, with_a_hard_limit, 40, 12, 1)
    # 64 are refused, and 32 go on for three rounds; then 48, which are refused, and 40.
    assert min(counts) == 32
    assert 40 in counts


def test_a_refusal_now_and_then_does_not_halve_what_handles_as_much() -> None:
    count = AdaptiveCount(1, 8)
    for _ in range(SETTLED):
        count.round(100.0 * count.count, 1.0, is_throttled=False)
    before = count.count
    for each in range(10):
        count.round(98.0 * count.count, 1.0, is_throttled=each % 2 == 0)
        assert count.count >= before - 1


def test_a_server_that_is_down_halves_them_once() -> None:
    count = AdaptiveCount(1, 8)
    for _ in range(SETTLED):
        count.round(100.0 * count.count, 1.0, is_throttled=False)
    for _ in range(50):
        count.round(0.0, 1.0, is_throttled=True)
    assert (count.count, count.stats().throttled) == (4, 1)


def test_what_was_enough_before_a_gap_is_tried_first_after_it() -> None:
    count = AdaptiveCount(1, MOST)
    rounds(count, slower_beyond_a_knee, 8, SETTLED, 1)
    for _ in range(50):
        count.round(0.0, 0.0, is_throttled=False)
    assert count.count == 1
    counts, _ = rounds(count, slower_beyond_a_knee, 8, 3, 1)
    assert counts[1] >= 7


def test_a_database_that_got_slower_is_seen_before_the_next_try_is_due() -> None:
    count = AdaptiveCount(1, MOST)
    rounds(count, congested_beyond_a_knee, 16, 200, 1)
    counts, _ = rounds(count, congested_beyond_a_knee, 4, 8, 1)
    assert counts[-1] <= 6


def test_rounds_in_which_no_call_ends_tell_nothing() -> None:
    """A handler may take longer than a round: they are busy, and handle nothing."""
    count = AdaptiveCount(1, MOST)
    for _ in range(50):
        count.round(0.0, 1.0, is_throttled=False)
    assert count.count <= 2
    rounds(count, slower_beyond_a_knee, 8, SETTLED, 1)
    before = count.count
    for each in range(2 * LONGEST_PAUSE):
        rate = 100.0 * before if each % 2 else 0.0
        count.round(rate, 1.0, is_throttled=False)
        # The next try may be due meanwhile, by one; no other sink is seen.
        assert before - 1 <= count.count <= before + max(1, before // 4)
