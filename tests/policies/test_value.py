"""Values are equal by their fields, and shown by them, as dataclasses are."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    RebalancingRound,
    Retry,
    ThroughputBalancer,
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Point(Value):
    x: int
    y: int = 0


class Other(Point):
    pass


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
