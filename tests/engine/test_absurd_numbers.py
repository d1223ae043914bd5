"""Numbers that nobody means are refused before anything has changed."""

from fractions import Fraction
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
)
from batchqueue_async._engine.lifecycle import partition_layout
from tests.support.recording_handler import RecordingHandler

ADAPTIVE = BatchQueueConfig[Any](
    partitions=PartitionPolicy.adaptive(), drain_tasks=DrainTaskPolicy.fixed(2)
)


class Unhashable(type):
    """A type that can be no key."""

    __hash__ = None  # type: ignore[assignment]


class Item: ...


@pytest.mark.parametrize(
    "item_type, handler, weight, message",
    [
        (Item, print, 1e6, r"weight must be .*65536 partitions.*got 1000000\.0"),
        (Item, print, 10**400, "weight must be finite"),
        (Item, print, 1e308, "weight must be .*65536"),
        (Item, print, float("inf"), "weight must be finite"),
        (Item, 7, 1.0, "handler must"),
        (Unhashable("Odd", (), {}), print, 1.0, "unhashable"),
    ],
)
@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_handler_that_is_refused_leaves_the_queue_as_it_was(
    item_type: Any,  # noqa: ANN401
    handler: Any,  # noqa: ANN401
    weight: float,
    message: str,
    *,
    is_replaced: bool,
) -> None:
    before, other = RecordingHandler[Any](), RecordingHandler[Any]()
    async with BatchQueue("q", ADAPTIVE) as queue:
        queue.add_handler(int, other, weight=3)
        if is_replaced:
            queue.add_handler(Item, before, weight=5)
        count = len(queue.stats().partitions)
        with pytest.raises((TypeError, ValueError), match=message):
            queue.add_handler(item_type, handler, weight)
        parts = queue._parts
        assert len(parts.handlers.types) == 1 + is_replaced
        assert parts.layout._weight == 3 + 5 * is_replaced
        assert len(queue.stats().partitions) == count
        assert len(parts.ownership.last_owners()) == count
        assert await queue.produce_many([1, Item()]) == 2
        # The next one gets what it would have got.
        queue.add_handler(str, other)
        assert len(queue.stats().partitions) == max(2, 4 + 5 * is_replaced)
    assert (len(other.items), len(before.items)) == (1, is_replaced)


async def test_growth_that_fails_midway_leaves_no_partition_without_an_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with BatchQueue("q", ADAPTIVE) as queue:
        new = partition_layout._new_partition

        def out_of_memory(parts: Any, index: int) -> Any:  # noqa: ANN401
            if index == 5:
                raise MemoryError
            return new(parts, index)

        with monkeypatch.context() as patched:
            patched.setattr(partition_layout, "_new_partition", out_of_memory)
            with pytest.raises(MemoryError):
                queue.add_handler(Item, print, weight=20)
        parts = queue._parts
        assert len(parts.partitions) == len(parts.ownership.last_owners()) == 2
        queue.add_handler(Item, print, weight=20)
        assert len(queue.stats().partitions) == 20


def test_handlers_that_ask_for_too_much_together_are_refused() -> None:
    queue = BatchQueue("q", ADAPTIVE)
    queue.add_handler(int, print, weight=1_000)
    with pytest.raises(ValueError, match=r"weight must be .* got 131000"):
        queue.add_handler(str, print, weight=131_000)
    assert queue.remove_handler(str) is False
    assert len(queue.stats().partitions) == 50 + 475


def test_so_many_partitions_for_so_many_drain_tasks_are_refused() -> None:
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.per_drain_task(40_000),
        drain_tasks=DrainTaskPolicy.fixed(2),
    )
    with pytest.raises(ValueError, match=r"partitions must be .*got 80000"):
        BatchQueue("q", config)


@pytest.mark.parametrize(
    "policy",
    [PartitionPolicy.fixed, PartitionPolicy.per_drain_task, PartitionPolicy.adaptive],
)
def test_a_policy_for_too_many_partitions_is_refused(policy: Any) -> None:  # noqa: ANN401
    assert policy(65_536)
    with pytest.raises(ValueError, match="must be <= 65536, got 65537"):
        policy(65_537)


def test_a_policy_for_too_many_drain_tasks_is_refused() -> None:
    assert DrainTaskPolicy.fixed(65_536).resolve() == 65_536
    with pytest.raises(ValueError, match="n must be <= 65536, got 65537"):
        DrainTaskPolicy.fixed(65_537)
    for multiplier in (1e6, 1e308):
        with pytest.raises(ValueError, match="multiplier must be"):
            DrainTaskPolicy.cpu_cores(multiplier)
    with pytest.raises(ValueError, match="base must be <= 65536"):
        DrainTaskPolicy.cpu_cores_with_base(65_537, 1.0)


class OwnPartitions(PartitionPolicy):
    """A user's policy."""

    def __init__(self, *counts: Any) -> None:  # noqa: ANN401 - any of them is wrong
        self.counts = [*counts]

    def resolve(self, drain_tasks: int, weighted_handlers: float | Fraction) -> int:
        count: int = self.counts.pop(0)
        return count


class OwnGrowth(OwnPartitions):
    grows = True


class OwnDrainTasks(DrainTaskPolicy):
    """A user's policy."""

    def __init__(self, count: Any) -> None:  # noqa: ANN401 - any of them is wrong
        self.count = count

    def resolve(self) -> int:
        count: int = self.count
        return count


@pytest.mark.parametrize(
    "count, why",
    [
        (0, "must be >= 1, got 0"),
        (-1, "must be >= 1, got -1"),
        (2.5, "must be an int, got 2.5"),
        (None, "must be an int, got None"),
    ],
)
def test_what_a_users_policy_resolves_to_is_refused(count: object, why: str) -> None:
    """It was an IndexError, or a division by zero."""
    for config in (
        BatchQueueConfig[Any](partitions=OwnPartitions(count, count)),
        BatchQueueConfig[Any](drain_tasks=OwnDrainTasks(count)),
    ):
        with pytest.raises((TypeError, ValueError), match=f"resolves to {why}"):
            BatchQueue("q", config)


def test_what_a_users_policy_resolves_to_later_leaves_the_queue_as_it_was() -> None:
    partitions = OwnGrowth(1, 0, 1)
    queue = BatchQueue("q", BatchQueueConfig[Any](partitions=partitions))
    with pytest.raises(ValueError, match="resolves to must be >= 1, got 0"):
        queue.add_handler(int, print)
    assert queue.remove_handler(int) is False
