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
    drain_task_stats,
    handler_stats,
    in_flight_bytes,
    partition_stats,
    waiting_bytes,
    waits,
)

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.parts import Parts

_OUTCOMES = ("handled", "failed", "dropped", "unhandled", "returned")


@dataclass(frozen=True, slots=True)
class Overview:
    """A queue at one moment."""

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
    registrations = [*parts.handlers, *parts.handlers.retired]
    loads, rebalancer = parts.loads.now(), parts.tasks.rebalancer
    stats = BatchQueueStats(
        name=parts.name,
        partitions=fullest,
        drain_tasks=tuple(
            drain_task_stats(each, parts.ownership.owned_by(each.index), loads)
            for each in parts.tasks.drain_tasks
        ),
        last_round=None if rebalancer is None else rebalancer.last_round,
        handlers=handler_stats(parts, _busiest(registrations, handlers)),
        retried=parts.delivery.retried,
        waiting_bytes=waiting_bytes(parts),
        in_flight_bytes=in_flight_bytes(parts),
        not_closed=parts.hooks.not_closed,
        **sums,
        **waits(every),
    )
    used = [count / each.maxsize for count, each in zip(waiting, every, strict=True)]
    return Overview(stats, used, len(registrations))


def _sums(
    parts: Parts[Any], every: Sequence[Partition[Any]], waiting: int
) -> dict[str, int]:
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
