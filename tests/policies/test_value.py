"""Values are equal by their fields, and shown by them, as dataclasses are."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass, replace

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    RebalancingRound,
    Retry,
    ThroughputBalancer,
    by_key,
)
from batchqueue_async._policies.value import Value

VALUES = [
    Retry(attempts=3),
    IdleBackoff(0.5, 2.0),
    ThroughputBalancer(1.5),
    PartitionPolicy.fixed(3),
    PartitionPolicy.adaptive(),
    DrainTaskPolicy.cpu_cores(0.5),
    RebalancingRound(number=1, moved=2, ratio_before=3.0, ratio_after=1.0),
    BatchQueueConfig[int](buffer_size=7, retry=Retry(attempts=2)),
]


class Point(Value):
    x: int
    y: int = 0


class Other(Point):
    pass


class Named(Point, kw_only=True):
    name: str
    color: str = "red"


@dataclass(frozen=True, kw_only=True)
class MyConfig(BatchQueueConfig[int]):
    """What a user derives."""

    table: str


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_copies_are_equal_have_one_hash_and_are_shown_alike(value: Value) -> None:
    for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other == value
        assert hash(other) == hash(value)
        assert repr(other) == repr(value)


def test_different_fields_or_classes_differ() -> None:
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert PartitionPolicy.fixed(3) != PartitionPolicy.per_drain_task(3)
    assert Retry(attempts=2) != replace(Retry(attempts=2), wait_max=9.0)
    assert Point(1) != (1, 0)


def test_it_is_shown_as_the_call_that_makes_it() -> None:
    assert repr(Point(1, y=2)) == "Point(x=1, y=2)"
    assert repr(IdleBackoff(0.5, 2.0)) == "IdleBackoff(shortest=0.5, longest=2.0)"


def test_a_field_is_not_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.z = 2  # type: ignore[attr-defined]
    assert point == Point(1)


def test_a_class_that_derives_from_one_may_have_attributes_of_its_own() -> None:
    other = Other(1)
    other.z = 3  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        other.x = 2  # type: ignore[misc]
    copied = copy.copy(other)
    assert (copied, copied.z) == (other, 3)  # type: ignore[attr-defined]


def test_another_one_is_made_of_it_before_anybody_asked_for_its_fields() -> None:
    class Fresh(Value):
        x: int
        y: int = 0

    assert Fresh(1).__replace__(y=2) == Fresh(1, 2)
    assert [each.name for each in fields(Fresh)] == ["x", "y"]
    assert replace(Fresh(1), y=3) == Fresh(1, 3)
    assert is_dataclass(Fresh)


def test_a_user_may_derive_a_dataclass() -> None:
    mine = MyConfig(table="orders", buffer_size=3)
    assert replace(mine, table="other").buffer_size == 3
    assert mine != MyConfig(table="other", buffer_size=3)
    assert pickle.loads(pickle.dumps(mine)) == mine


def test_fields_are_given_by_position_or_by_name() -> None:
    assert Point(1, 2) == Point(y=2, x=1)
    assert Named(1, name="a") == Named(1, 0, name="a", color="red")


@pytest.mark.parametrize(
    "values, named, says",
    [
        ((), {}, "Point: missing a required argument: 'x'"),
        ((1,), {"z": 2}, "Point: got an unexpected keyword argument 'z'$"),
        ((1, 2, 3), {}, "Point: too many positional arguments"),
        ((1,), {"x": 2}, "Point: multiple values for argument 'x'"),
        ((1, 2, 3), {"y": 2}, "Point: "),
    ],
)
def test_what_does_not_fit_is_refused(
    values: tuple[int, ...], named: dict[str, int], says: str
) -> None:
    with pytest.raises(TypeError, match=f"^{says}"):
        Point(*values, **named)
    with pytest.raises(TypeError, match=r"^Named: too many positional arguments"):
        Named(1, 2, "a", name="a")  # type: ignore[misc]


def test_an_unknown_name_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"argument 'max_attempts'; did you mean att"):
        Retry(max_attempts=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'max_batch_size'; did you mean max_batch\?$"):
        BatchQueueConfig(max_batch_size=500)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name, meant",
    [
        ("handler", "consumer"),
        ("maxsize", "buffer_size"),
        ("max_queue_size", "buffer_size"),
        ("flush_at", "max_batch"),
        ("batch_timeout", "linger"),
        ("max_wait", "linger"),
        ("max_retries", r"retry=Retry\(attempts=...\)"),
        ("workers", "drain_tasks"),
        ("fair_by", r"selector=fair_by\(...\)"),
    ],
)
def test_a_name_that_others_use_is_answered_with_ours(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"'{name}'; did you mean {meant}\?$"):
        BatchQueueConfig(**{name: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name, meant",
    [
        ("max_retries", "attempts, with the first one"),
        ("max_wait", "wait_max"),
        ("timeout", "deadline"),
    ],
)
def test_so_is_one_that_is_given_to_retry(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"'{name}'; did you mean {meant}\?$"):
        Retry(**{name: 1})  # type: ignore[arg-type]


def test_its_signature_is_known() -> None:
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 0) -> None"
    assert str(inspect.signature(Named)).startswith("(x: 'int', y: 'int' = 0, *, name")
    by_length = by_key(len)
    assert list(inspect.signature(by_length).parameters) == ["item", "partitions"]
