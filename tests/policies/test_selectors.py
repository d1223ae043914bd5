"""Where selectors put items."""

from __future__ import annotations

import copy
import pickle
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async._policies.selectors import (
    PartitionSelector,
    QueueSelector,
    by_key,
    by_type,
    round_robin,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "mark, name", [(by_type, "by_type"), (round_robin, "round_robin")]
)
def test_a_mark_keeps_its_identity(mark: QueueSelector, name: str) -> None:
    """A queue recognises it by identity, also in a copied or pickled config."""
    assert repr(mark) == name
    assert copy.deepcopy(mark) is mark
    assert pickle.loads(pickle.dumps(mark)) is mark


@pytest.mark.parametrize("arguments", [(), ("item", 4)])
def test_a_mark_is_not_called(arguments: tuple[object, ...]) -> None:
    """Its state is the queue's; the error says how it is used."""
    message = r"^by_type is declared with selector=by_type, never called$"
    with pytest.raises(TypeError, match=message):
        by_type(*arguments)


def test_a_mark_passes_for_a_selector_of_any_item() -> None:
    """For typing it is a selector like any other."""
    selector: PartitionSelector[int] = by_type
    assert callable(selector)


@given(st.one_of(st.text(), st.integers(), st.none(), st.floats()), st.integers(1, 50))
def test_a_key_has_one_partition_in_range(key: object, partitions: int) -> None:
    """Equal keys share a partition, whatever else the items hold."""
    selector = by_key(itemgetter(0))
    first = selector((key, "one"), partitions)
    assert first == selector((key, "other"), partitions)
    assert 0 <= first < partitions


def test_equal_keys_of_different_types_are_one_key() -> None:
    """1, 1.0 and True are equal, so they go together."""
    selector: PartitionSelector[float] = by_key(abs)
    assert len({selector(key, 97) for key in (1, 1.0, True, -1)}) == 1


def test_keys_spread_over_the_partitions() -> None:
    """Different keys use all partitions."""
    selector: PartitionSelector[int] = by_key(abs)
    assert {selector(key, 8) for key in range(64)} == set(range(8))


class Place(NamedTuple):
    """A key with a NaN inside, as rows of a table have it."""

    name: str
    height: float


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: complex("nan"),
        lambda: Decimal("nan"),
        lambda: ("a", float("nan")),
        lambda: ("a", (1, float("nan"))),
        lambda: Place("a", float("nan")),
    ],
    ids=["float", "complex", "Decimal", "tuple", "nested tuple", "named tuple"],
)
def test_every_nan_is_the_same_key(make: Callable[[], object]) -> None:
    """Each NaN object has a hash of its own: alone it would scatter items."""
    keys = [make() for _ in range(50)]
    selector: PartitionSelector[object] = by_key(lambda key: key)
    assert len({selector(key, 1_009) for key in keys}) == 1


def test_a_tuple_with_its_own_hash_keeps_it() -> None:
    """A key type that defines equality decides what goes together."""

    class Folded(tuple[str]):
        __slots__ = ()

        def __hash__(self) -> int:
            return hash(self[0].lower())

    selector: PartitionSelector[Folded] = by_key(lambda key: key)
    assert selector(Folded(["A"]), 1_009) == selector(Folded(["a"]), 1_009)


def test_an_unhashable_key_names_the_selector_and_the_type() -> None:
    """The producer sees which function gave what."""

    def tags_of(item: list[str]) -> object:
        return item

    selector = by_key(tags_of)
    message = r"^by_key\(.*\.tags_of\) needs hashable keys, got a list$"
    with pytest.raises(TypeError, match=message):
        selector(["a"], 4)


def test_a_key_function_that_raises_reaches_the_producer() -> None:
    """Its own error is not disguised, not even a TypeError."""
    with pytest.raises(KeyError):
        by_key(itemgetter("missing"))({}, 4)
    with pytest.raises(TypeError, match=r"^bad operand type for abs\(\): 'str'$"):
        by_key(abs)("a", 4)  # type: ignore[arg-type]


def test_a_key_must_be_callable() -> None:
    """A name of a field is no key function."""
    with pytest.raises(TypeError, match=r"^key must be callable.*, got 'user'$"):
        by_key("user")  # type: ignore[arg-type]


def test_selectors_by_the_same_key_are_equal() -> None:
    """So that two configs can be compared, and shown."""
    assert by_key(len) == by_key(len)
    assert by_key(itemgetter(0)) != by_key(itemgetter(1))
    assert repr(by_key(len)) == "by_key(len)"
    assert repr(by_key(itemgetter(1))) == "by_key(operator.itemgetter(1))"
