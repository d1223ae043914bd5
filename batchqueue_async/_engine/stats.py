"""What a queue looks like at one moment: frozen, and apart from the queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.handler_stats import DrainTaskLimit, HandlerStats
from batchqueue_async._policies.sizing import plain
from batchqueue_async._policies.value import Value, frozen
from batchqueue_async._validation import refuse

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.drain_task import DrainTask
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts


@frozen(kw_only=True)
class Totals(Value):
    """What became of items; `accepted` is the sum of `waiting` to `returned`."""

    accepted: int
    """Items that were let in, so far."""
    rejected: int
    """Items that were refused because of a full partition or a closed queue."""
    rejected_closed: int
    """Of these, the ones that were refused because the queue was closed."""
    waiting: int
    """Items that wait now for their drain task."""
    in_flight: int
    """Items that were taken and whose handler has not ended yet."""
    handled: int
    """Items whose handler returned."""
    failed: int
    """Items whose handler failed for good."""
    dropped: int
    """Items that newer ones displaced."""
    unhandled: int
    """Items of a type without a handler."""
    returned: int
    """Items that the shutdown deadline, or the loop's end, left."""
    capacity: int
    """Items that may wait at the same time."""
    waiting_producers: int
    """Producers that wait for room now, on the loop and on threads."""
    oldest_age: float
    """For how many seconds the oldest waiting item has waited; 0.0 where none waits.
    Exact where it found its partition empty; an item that a take left behind, or newer
    ones have brought to the front, may count as older by the time between two takes."""

    @property
    def used_fraction(self) -> float:
        """How full it is, from 0.0 to 1.0; 0.0 where the capacity is not known."""
        return self.waiting / self.capacity if self.capacity else 0.0

    @property
    def unaccounted(self) -> int:
        """Accepted items that neither wait, nor are in flight, nor have an outcome.

        0, always: what is accepted is accounted for. With
        `BatchQueueConfig(audit=True)` that is measured, since `accepted` is counted by
        itself then; without it, it is derived from the others.
        """
        settled = self.handled + self.failed + self.dropped + self.unhandled
        return self.accepted - self.waiting - self.in_flight - settled - self.returned


@frozen(kw_only=True)
class PartitionStats(Totals):
    """One partition at one moment."""

    index: int
    """The number by which selectors name it."""
    owner: int | None
    """The drain task that may take from it, or None while it is in a handoff."""


@frozen(kw_only=True)
class DrainTaskStats(Value):
    """One drain task at one moment."""

    index: int
    """The number by which partitions name their owner."""
    partitions: tuple[int, ...]
    """The partitions that it owns."""
    cycles: int
    """Cycles in which it delivered something."""
    busy: float
    """Seconds it has spent in cycles."""
    load: float
    """What its partitions were asked to carry since the last round of rebalancing:
    items offered to them, or seconds in handlers, as its balancer measures."""


@frozen(kw_only=True)
class RebalancingRound(Value):
    """What the last round of rebalancing found and did."""

    number: int
    """Rounds so far, this one included."""
    moved: int
    """Partitions that changed their drain task."""
    ratio_before: float
    """Load of the most loaded drain task by that of the least loaded one."""
    ratio_after: float
    """The same loads under the owners after the round."""


@frozen(kw_only=True)
class BatchQueueStats(Totals):
    """One queue at one moment: the sums of its partitions, and its drain tasks."""

    name: str
    """The queue's name."""
    partitions: tuple[PartitionStats, ...]
    """Each partition, by index."""
    drain_tasks: tuple[DrainTaskStats, ...]
    """Each drain task, by index."""
    last_round: RebalancingRound | None
    """The last round of rebalancing; None before the first, and without it."""
    handlers: tuple[HandlerStats, ...] = ()
    """Each handler, in order of registration; those that were replaced or removed are
    at the end until they are closed."""
    retried: int = 0
    """Items that were to be tried again, each time; those are not counted that were
    only split."""
    waiting_bytes: float | None = None
    """The sizes of the items that wait, together, in the unit of `size_of`; None where
    sizes don't count."""
    in_flight_bytes: float | None = None
    """The same of what handlers hold; what one cycle took from a partition counts until
    all of it has ended."""
    drain_task_limit: DrainTaskLimit | None = None
    """How many drain tasks own partitions, where `DrainTaskPolicy.adaptive` says it;
    else None."""
    not_closed: tuple[str, ...] = ()
    """Handlers whose `on_close` was due and did not complete: what they had merged, and
    not written yet, is lost although it counts as handled."""

    @property
    def total_used(self) -> int:
        """Items that wait in all partitions."""
        return self.waiting

    def top(self, n: int) -> tuple[PartitionStats, ...]:
        """Return the `n` fullest partitions, fullest first, ties by index.

        Raises:
            ValueError: `n` is negative.
        """
        if n < 0:
            refuse("n", ">= 0", n)
        by_fill = sorted(self.partitions, key=lambda each: (-each.waiting, each.index))
        return tuple(by_fill[:n])


_SUMMED = tuple(field.name for field in fields(Totals) if field.name != "oldest_age")

# There may be tens of thousands of partitions. A frozen dataclass sets its fields by
# name, one after the other; their slots' setters do the same in a fifth of the time.
_new = object.__new__
_accepted, _rejected, _rejected_closed, _waiting, _in_flight, _handled = (
    getattr(PartitionStats, name).__set__ for name in _SUMMED[:6]
)
_failed, _dropped, _unhandled, _returned, _capacity, _waiting_producers = (
    getattr(PartitionStats, name).__set__ for name in _SUMMED[6:]
)
_oldest_age = getattr(PartitionStats, "oldest_age").__set__  # noqa: B009
_index = getattr(PartitionStats, "index").__set__  # noqa: B009 - it is no int there
_owner = getattr(PartitionStats, "owner").__set__  # noqa: B009


def snapshot(parts: Parts[Any]) -> BatchQueueStats:
    """Return the statistics of one moment: nothing runs while they are collected."""
    look = partition_stats if parts.ingress is None else _guarded
    partitions = tuple(map(look, parts.partitions, parts.ownership.owners()))
    totals: dict[str, Any]
    totals = {field: sum(map(attrgetter(field), partitions)) for field in _SUMMED}
    totals["oldest_age"] = max(each.oldest_age for each in partitions)
    handlers = (*parts.handlers, *parts.handlers.retired)
    return queue_stats(parts, partitions, handlers, totals)


def queue_stats(
    parts: Parts[Any],
    partitions: tuple[PartitionStats, ...],
    handlers: Iterable[Registration],
    totals: dict[str, Any],
) -> BatchQueueStats:
    """Return what a queue looks like now, of these partitions and handlers.

    `totals` are of all its partitions, also of those that are not shown.
    """
    owned_by, loads = parts.ownership.owned_by, parts.loads.now()
    inside, rebalancer = parts.detector.calls.seconds_inside(), parts.tasks.rebalancer
    room = parts.room
    return BatchQueueStats(
        name=parts.name,
        partitions=partitions,
        drain_tasks=tuple(
            _drain_task(each, owned_by(each.index), loads)
            for each in parts.tasks.drain_tasks
        ),
        last_round=None if rebalancer is None else rebalancer.last_round,
        handlers=tuple(each.stats(inside.get(each, 0.0)) for each in handlers),
        retried=parts.delivery.retried,
        drain_task_limit=drain_task_limit(parts),
        waiting_bytes=None if room is None else plain(room.waiting),
        in_flight_bytes=None if room is None else plain(room.in_hands),
        not_closed=parts.hooks.not_closed,
        **totals,
    )


def now_of(stats: BatchQueueStats) -> str:
    """Return what a queue's repr says: what is under way, in the words of `stats`."""
    told = [f"waiting={stats.waiting}", f"in_flight={stats.in_flight}"]
    if stats.waiting:
        told.append(f"oldest_age={stats.oldest_age:.3g}")
    if stats.waiting_producers:
        told.append(f"waiting_producers={stats.waiting_producers}")
    return " ".join(told)


def _guarded(partition: Partition[Any], owner: int | None) -> PartitionStats:
    # A thread that displaces items changes several counts.
    with partition.guard:
        return partition_stats(partition, owner)


def drain_task_limit(parts: Parts[Any]) -> DrainTaskLimit | None:
    """Return how many drain tasks are at work, where that changes."""
    rebalancer = parts.tasks.rebalancer
    if rebalancer is None or rebalancer.demand is None:
        return None
    return rebalancer.demand.count.stats()


def waiting_producers(partition: Partition[Any]) -> int:
    """Return how many producers wait for room in it."""
    return 0 if partition.line.head is None else len(partition.line)


def partition_stats(partition: Partition[Any], owner: int | None) -> PartitionStats:
    """Return what one partition looks like now; whoever shares it holds its guard."""
    accounts, waiting = partition.accounts, len(partition.items)
    stats = _new(PartitionStats)
    _index(stats, partition.index)
    _owner(stats, owner)
    entered = partition.entered
    _accepted(stats, accounts.taken_out + waiting if entered is None else entered)
    _rejected(stats, accounts.rejected)
    _rejected_closed(stats, accounts.rejected_closed)
    _waiting(stats, waiting)
    _in_flight(stats, accounts.in_flight)
    _handled(stats, accounts.handled)
    _failed(stats, accounts.failed)
    _dropped(stats, accounts.dropped)
    _unhandled(stats, accounts.unhandled)
    _returned(stats, accounts.returned)
    _capacity(stats, partition.maxsize)
    line = partition.line
    _waiting_producers(stats, 0 if line.head is None else len(line))
    _oldest_age(stats, partition.ages.age(partition))
    return stats


def _drain_task(
    drain_task: DrainTask[Any], owned: tuple[int, ...], loads: Sequence[float]
) -> DrainTaskStats:
    return DrainTaskStats(
        index=drain_task.index,
        partitions=owned,
        cycles=drain_task.cycles,
        busy=drain_task.busy,
        load=sum(map(loads.__getitem__, owned)),
    )
