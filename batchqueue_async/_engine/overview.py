"""What is seen of a queue from afar: its sums, and the largest of its parts.

With thousands of partitions a snapshot of each takes the loop's time for a moment, and
whoever looks once a second can't show them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.stats import (
    BatchQueueStats,
    partition_stats,
    queue_stats,
    waiting_producers,
)

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts

_OUTCOMES = ("handled", "failed", "dropped", "unhandled", "returned")


@dataclass(frozen=True, slots=True)
class Overview:
    stats: BatchQueueStats
    """Of its partitions the fullest, of its handlers the busiest; sums are of all."""
    used_fractions: list[float]
    """How full each partition is."""
    handler_count: int


def overview(
    parts: Parts[Any], *, partitions: int, handlers: int | None = None
) -> Overview:
    """Return the sums of this moment, and so many of its parts; None for all."""
    # Of now: read from another thread, there may be more of them in a moment.
    every = tuple(parts.partitions)
    # One for all partitions: with threads, sums are of one moment, too.
    with every[0].guard:
        waiting = [len(each.items) for each in every]
        sums = _sums(parts, every, sum(waiting))
        places = nsmallest(
            partitions, range(len(every)), key=lambda place: (-waiting[place], place)
        )
        owners = parts.ownership.owners()
        fullest = tuple(partition_stats(every[at], owners[at]) for at in places)
    sums["waiting_producers"] = sum(map(waiting_producers, every))
    sums["oldest_age"] = max(each.ages.age(each) for each in every)
    registrations = [*parts.handlers, *parts.handlers.retired]
    stats = queue_stats(parts, fullest, _busiest(registrations, handlers), sums)
    used = [count / each.maxsize for count, each in zip(waiting, every, strict=True)]
    return Overview(stats, used, len(registrations))


def _sums(
    parts: Parts[Any], every: Sequence[Partition[Any]], waiting: int
) -> dict[str, float]:
    accounts = [each.accounts for each in every]
    sums = {
        name: sum(map(attrgetter(name), accounts))
        for name in (
            "rejected",
            "rejected_closed",
            "in_flight",
            "taken_out",
            *_OUTCOMES,
        )
    }
    accepted = sums.pop("taken_out") + waiting
    if parts.config.audit:
        accepted = sum(each.entered or 0 for each in every)
    capacity = sum(each.maxsize for each in every)
    return sums | {"waiting": waiting, "accepted": accepted, "capacity": capacity}


def _busiest(every: list[Registration], most: int | None) -> list[Registration]:
    if most is None:
        return every
    return nlargest(most, every, key=attrgetter("items"))
