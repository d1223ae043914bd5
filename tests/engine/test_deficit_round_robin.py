"""The algorithm by itself: shares, what a turn costs, and what stays for the next."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchqueue_async._engine.partitions.deficit_round_robin import DeficitRoundRobin
from batchqueue_async._policies.selectors import UNIT


class Flow:
    """Somebody who shares, with so many items."""

    def __init__(self, name: str, count: int, weight: float = 1.0) -> None:
        self.name = name
        self.items: Sequence[int] = range(count)
        self.weight = round(weight * UNIT)
        self.spent = 0


def ring_of(flows: Sequence[Flow], quantum: int = 100) -> DeficitRoundRobin[Flow]:
    ring: DeficitRoundRobin[Flow] = DeficitRoundRobin(quantum)
    for flow in flows:
        ring.add(flow)
    return ring


def taken(ring: DeficitRoundRobin[Flow], most: int | None) -> dict[str, int]:
    """Take a batch, as a partition does; returns how many each flow gave."""
    shares = ring.allot(most)
    for flow, count in shares.items():
        flow.items = flow.items[count:]
        if not flow.items:
            ring.discard(flow)
    return {flow.name: count for flow, count in shares.items()}


def test_without_a_most_a_batch_is_one_round() -> None:
    ring = ring_of([Flow("flood", 1000), Flow("double", 1000, 2), Flow("quiet", 3)])
    assert taken(ring, None) == {"flood": 100, "double": 200, "quiet": 3}
    assert taken(ring, None) == {"flood": 100, "double": 200}


def test_a_batch_is_filled_where_there_is_enough() -> None:
    ring = ring_of([Flow("flood", 1000), Flow("quiet", 3)])
    assert taken(ring, 500) == {"flood": 497, "quiet": 3}
    assert taken(ring, 500) == {"flood": 500}
    assert taken(ring, 500) == {"flood": 3}
    assert taken(ring, 500) == {}


def test_small_batches_are_even_though_a_large_one_went_before() -> None:
    ring = ring_of([Flow(name, 1000) for name in "abc"])
    assert taken(ring, 100) == {"a": 34, "b": 33, "c": 33}
    for _ in range(5):
        assert taken(ring, 9) == {"a": 3, "b": 3, "c": 3}


def test_gains_shrink_so_that_everybody_is_in_the_next_batch() -> None:
    """However many flood, and although each might give 100 in its turn."""
    floods = [Flow(f"flood{n}", 1000) for n in range(49)]
    ring = ring_of([*floods, Flow("quiet", 1)])
    shares = taken(ring, 100)
    assert shares.pop("quiet") == 1
    assert set(shares.values()) <= {2, 3}
    assert sum(shares.values()) == 99


@pytest.mark.parametrize("large", [None, 101, 1001])
def test_a_round_that_a_large_batch_began_holds_nobody_up(large: int | None) -> None:
    """Else whoever comes now would wait for several small ones."""
    ring = ring_of([Flow("a", 10_000), Flow("b", 10_000)])
    for _ in range(3):
        taken(ring, large)
        newcomer = Flow("quiet", 1)
        ring.add(newcomer)
        assert taken(ring, 10)["quiet"] == 1


@given(
    st.lists(st.none() | st.integers(1, 30), max_size=20),
    st.integers(1, 6),
    st.integers(0, 5),
)
@example([29, 18, 1, 26, 35, 6], 4, 2)
def test_whoever_comes_is_in_the_next_batch(
    sizes: list[int | None], others: int, more: int
) -> None:
    ring = ring_of([Flow(str(n), 10_000) for n in range(others)])
    for most in sizes:
        taken(ring, most)
    ring.add(Flow("quiet", 1))
    assert taken(ring, others + 1 + more)["quiet"] == 1


def test_with_fewer_places_than_flows_all_have_their_turn() -> None:
    ring = ring_of([Flow(str(n), 1000) for n in range(7)])
    seen: Counter[str] = Counter()
    for _ in range(7):
        seen.update(taken(ring, 3))
    assert set(seen.values()) == {3}


def test_what_is_allotted_and_cannot_be_taken_keeps_its_turn() -> None:
    """For want of memory, say."""
    ring = ring_of([Flow("a", 3), Flow("b", 3)])
    for _ in range(2):
        assert sum(ring.allot(10).values()) == 6
    assert taken(ring, 10) == {"a": 3, "b": 3}


def test_a_turn_that_a_batch_has_cut_goes_on_in_the_next() -> None:
    """Without a second gain: else whoever is cut often would get more."""
    ring = ring_of([Flow("a", 1000, 3), Flow("b", 1000, 2)], quantum=10)
    seen: Counter[str] = Counter()
    for _ in range(100):
        seen.update(taken(ring, 7))
    assert abs(seen["a"] - 420) <= 10
    assert abs(seen["b"] - 280) <= 10


def test_so_does_a_turn_that_a_batch_without_a_limit_ends() -> None:
    ring = ring_of([Flow("a", 10**6, 4), Flow("b", 10**6, 1)], quantum=2)
    seen: Counter[str] = Counter()
    for _ in range(1000):
        seen.update(taken(ring, 11))
        seen.update(taken(ring, None))
    assert abs(seen["a"] - 4 * seen["b"]) <= 16


def test_what_a_flow_does_not_use_does_not_add_up_while_it_is_away() -> None:
    flood, quiet = Flow("flood", 10_000), Flow("quiet", 1)
    ring = ring_of([flood, quiet])
    for _ in range(10):
        quiet.items = range(1)
        ring.add(quiet)
        assert taken(ring, None) == {"flood": 100, "quiet": 1}
    quiet.items = range(1000)
    ring.add(quiet)
    assert taken(ring, None) == {"flood": 100, "quiet": 100}


@pytest.mark.parametrize("most", [None, 10])
def test_gains_of_less_than_an_item_add_up_without_idle_rounds(
    most: int | None,
) -> None:
    ring = ring_of([Flow("a", 50, 1e-6), Flow("b", 50, 2e-6)], quantum=1)
    seen: Counter[str] = Counter()
    while sum(seen.values()) < 30:
        shares = taken(ring, most)
        assert shares, "a batch of nothing"
        seen.update(shares)
    assert abs(seen["b"] - 2 * seen["a"]) <= 3


weights = st.floats(0.01, 100)


@given(
    st.lists(weights, min_size=1, max_size=8),
    st.integers(100, 200),
    st.lists(st.none() | st.integers(1, 300), min_size=1, max_size=10),
    st.integers(1, 20),
)
@example([1.0, 11.625], 100, [None, 1], 100)
@example([1.0, 1.0], 100, [None, 1, 201], 100)
@example([4.0, 1.0], 100, [501, None], 100)
def test_shares_keep_to_the_weights(
    given_weights: list[float], quantum: int, sizes: list[int | None], times: int
) -> None:
    """Of those who always have items, each is within a turn of its share."""
    flows = [Flow(str(n), 10**9, each) for n, each in enumerate(given_weights)]
    ring = ring_of(flows, quantum)
    seen: Counter[str] = Counter()
    for most in sizes * times:
        shares = taken(ring, most)
        assert most is None or sum(shares.values()) == most
        seen.update(shares)
    rounds = [seen[each.name] / (each.weight / UNIT) for each in flows]
    # Per weight, nobody is ahead of anybody by more than one turn of each.
    turn = [quantum + 1 / (each.weight / UNIT) for each in flows]
    assert max(rounds) - min(rounds) <= 2 * max(turn)


@given(st.lists(st.integers(0, 50), max_size=20), st.none() | st.integers(1, 40))
def test_everything_is_taken_once(counts: list[int], most: int | None) -> None:
    flows = [Flow(str(n), count) for n, count in enumerate(counts)]
    ring = ring_of(flows, quantum=7)
    seen: Counter[str] = Counter()
    while shares := taken(ring, most):
        seen.update(shares)
    assert seen == Counter(
        {each.name: n for each, n in zip(flows, counts, strict=True) if n}
    )
    assert len(ring) == 0


@pytest.mark.parametrize("count", [10, 1000])
def test_an_item_costs_the_same_however_many_share(count: int) -> None:
    """Counted in turns: the paper's O(1)."""
    turns = 0

    class Counting(DeficitRoundRobin[Flow]):
        def _serve(self, flow: Flow, most: int, shares: dict[Flow, int]) -> int:
            nonlocal turns
            turns += 1
            return super()._serve(flow, most, shares)

    ring = Counting(100)
    for n in range(count):
        ring.add(Flow(str(n), 100))
    items = 0
    while shares := taken(ring, 50):
        items += sum(shares.values())
    assert items == 100 * count
    assert turns <= 1.1 * items
