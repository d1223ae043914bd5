"""How many drain tasks are to be at work, found by trying: round by round, no clock."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._engine.lifecycle.adaptive_drain_tasks import AdaptiveCount


def run(count: AdaptiveCount, rate: Callable[[int], float], rounds: int) -> list[int]:
    """Let busy rounds pass; returns the counts that were at work."""
    counts = []
    for _ in range(rounds):
        counts.append(count.count)
        count.round(rate(count.count), 1.0, is_throttled=False)
    return counts


def up_to(slots: int) -> Callable[[int], float]:
    """Return the rate of a server that does so many calls at once, and no more."""
    return lambda count: 100.0 * min(count, slots)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 16])
def test_it_comes_to_what_the_server_does_at_once(slots: int) -> None:
    count = AdaptiveCount(1, 16)
    run(count, up_to(slots), 60)
    counts = run(count, up_to(slots), 100)
    reached = sum(map(up_to(slots), counts)) / len(counts)
    assert reached > 0.9 * up_to(slots)(slots)
    # Tries that are in vain are rare.
    assert sum(counts) / len(counts) < slots + 1


def test_more_that_make_it_slower_are_given_back() -> None:
    count = AdaptiveCount(1, 32)
    run(count, lambda now: 100.0 * now if now <= 4 else 300.0 / now, 60)
    assert 3 <= count.count <= 5


def test_idle_ones_are_given_back() -> None:
    count = AdaptiveCount(2, 16)
    run(count, up_to(16), 40)
    assert count.count > 8
    for _ in range(20):
        count.round(10.0, 0.2, is_throttled=False)
    assert count.count == 2
    assert count.stats().reason == "idle"


def refusing(count: AdaptiveCount, most: int, rounds: int) -> list[int]:
    """Let rounds pass with a server that refuses more calls than so many at once."""
    counts = []
    for _ in range(rounds):
        counts.append(now := count.count)
        count.round(100.0 * min(now, most), 1.0, is_throttled=now > most)
    return counts


def test_what_a_server_refuses_is_tried_in_vain_and_taken_back() -> None:
    count = AdaptiveCount(1, 16)
    assert 4 in refusing(count, 4, 60)
    counts = refusing(count, 4, 200)
    assert set(counts) <= {3, 4, 5}
    assert sum(counts) / len(counts) > 0.9 * 4
    # A try costs refusals, so there are few.
    assert counts.count(5) < 15
    assert count.stats().throttled > 0


def test_what_is_still_refused_when_the_try_is_taken_back_is_halved() -> None:
    count = AdaptiveCount(1, 16)
    while count.count < 8:
        count.round(100.0 * count.count, 1.0, is_throttled=False)
    # 8 are being tried when the server begins to refuse more than 2.
    assert refusing(count, 2, 4) == [8, 4, 4, 2]


def test_a_throttled_server_gets_half_once_and_then_more_again() -> None:
    count = AdaptiveCount(1, 16)
    run(count, up_to(16), 60)
    before = count.count
    for _ in range(3):
        count.round(500.0, 1.0, is_throttled=True)
    assert count.count == before // 2
    assert (count.stats().throttled, count.stats().reason) == (1, "throttled")
    run(count, up_to(16), 100)
    assert count.count > before // 2


def test_retries_all_the_time_are_the_price_where_fewer_cannot_be() -> None:
    """One call of a hundred fails, say: there are some in each round."""
    count = AdaptiveCount(1, 16)
    for _ in range(60):
        count.round(up_to(8)(count.count), 1.0, is_throttled=True)
    counts = []
    for _ in range(100):
        counts.append(count.count)
        count.round(up_to(8)(count.count), 1.0, is_throttled=True)
    assert sum(map(up_to(8), counts)) / len(counts) > 0.9 * up_to(8)(8)


@given(
    least=st.integers(1, 20),
    more=st.integers(0, 50),
    rounds=st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1), st.booleans())),
)
def test_it_stays_within_its_bounds(
    least: int, more: int, rounds: list[tuple[float, float, bool]]
) -> None:
    count = AdaptiveCount(least, least + more)
    for rate, use, is_throttled in rounds:
        count.round(rate, use, is_throttled=is_throttled)
        assert least <= count.count <= least + more


def test_it_goes_on_after_busy_rounds_without_an_item() -> None:
    count = AdaptiveCount(1, 8)
    for rate in (100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0):
        count.round(rate, 1.0, is_throttled=False)
    for _ in range(40):
        count.round(100.0 * count.count, 1.0, is_throttled=False)
    assert count.count == 8
