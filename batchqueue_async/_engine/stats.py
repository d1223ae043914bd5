"""The statistics of a queue at one moment, which do not change after that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.handler_stats import DrainTaskLimit, HandlerStats
from batchqueue_async._policies.sizing import plain
from batchqueue_async._policies.value import Value
from batchqueue_async._validation import refuse

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.drain_task import DrainTask
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts


class Totals(Value, kw_only=True):
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
    """Items that were left unhandled at the shutdown deadline, or the loop's end."""
    capacity: int
    """Items that may wait at the same time."""
    waiting_producers: int
    """Producers that wait for room now, on the loop and on threads."""
    oldest_age: float
    """For how many seconds the oldest waiting item has waited; 0.0 where none waits.
    One whose batch waits for its next attempt has waited since the first one failed.
    Exact where it found its partition empty; an item that a take left behind, or newer
    ones have brought to the front, may count as older by the time between two takes."""

    @property
    def used_fraction(self) -> float:
        """How full it is, from 0.0 to 1.0; 0.0 where the capacity is not known."""
        return self.waiting / self.capacity if self.capacity else 0.0

    @property
    def unaccounted(self) -> int:
        """Accepted items that neither wait, nor are in flight, nor have an outcome.

        It is always 0, as what is accepted is accounted for. With
        `BatchQueueConfig(audit=True)` that is measured, since `accepted` is counted
        independently then; else `accepted` is derived from the other numbers.
        """
        settled = self.handled + self.failed + self.dropped + self.unhandled
        return self.accepted - self.waiting - self.in_flight - settled - self.returned


class PartitionStats(Totals, kw_only=True):
    """One partition at one moment."""

    index: int
    """The number by which selectors name it."""
    owner: int | None
    """The drain task that may take from it, or None while it is in a handoff."""


class DrainTaskStats(Value, kw_only=True):
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
    """The load of its partitions since the last round of rebalancing: items offered to
    them, or seconds in handlers, as `Rebalancing.measure` says."""


class RebalancingRound(Value, kw_only=True):
    """What the last round of rebalancing found and did."""

    number: int
    """Rounds so far, this one included."""
    moved: int
    """Partitions that changed their drain task."""
    ratio_before: float
    """Load of the most loaded drain task, divided by that of the least loaded one."""
    ratio_after: float
    """The same loads under the owners after the round."""


class BatchQueueStats(Totals, kw_only=True):
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
    """Items that were to be tried again, counted each time; items of batches that were
    only split are not counted."""
    waiting_bytes: float | None = None
    """The sum of the sizes of waiting items, in the unit of `size_of`; None where sizes
    don't count."""
    in_flight_bytes: float | None = None
    """The same for items that handlers hold; all that one cycle took from a partition
    counts until the last item of it has ended."""
    drain_task_limit: DrainTaskLimit | None = None
    """How many drain tasks own partitions, where `DrainTaskPolicy.adaptive` says it;
    else None."""
    not_closed: tuple[str, ...] = ()
    """Handlers whose `on_close` was due and did not complete: items that they had
    merged and not written yet are lost, although they count as handled."""

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


class Overview(Value):
    """A queue at a glance: its sums, its fullest partitions, its busiest handlers."""

    stats: BatchQueueStats
    """With the fullest partitions and the busiest handlers only; sums are of all."""
    used_fractions: list[float]
    """How full each partition is."""
    handler_count: int


def overview(
    parts: Parts, *, partitions: int | None = None, handlers: int | None = None
) -> Overview:
    """Return the sums, and so many partitions and handlers; None for all.

    All are of one moment: nothing runs while they are collected.
    With thousands of partitions a look at each holds the loop up, and a display that
    looks once a second can't show them all.
    """
    # A copy: if another thread calls this, partitions may be added meanwhile.
    every = tuple(parts.partitions)
    places: Iterable[int] = range(len(every))
    # All partitions share one guard: with threads, too, sums are of one moment.
    with every[0].guard:
        waiting = [len(each.items) for each in every]
        sums: dict[str, Any] = {}
        if partitions is not None:
            sums = _sums(every, sum(waiting))
            places = nsmallest(partitions, places, key=lambda at: (-waiting[at], at))
        owners = parts.ownership.owners()
        shown = tuple(_partition(every[at], owners[at]) for at in places)
    if partitions is None:
        # Summed from what is shown: a signal handler may have put items in meanwhile.
        names = Totals.__dataclass_fields__
        sums = {name: sum(map(attrgetter(name), shown)) for name in names}
        sums["oldest_age"] = max(each.oldest_age for each in shown)
    registrations = [*parts.handlers, *parts.handlers.retired]
    busiest = registrations
    if handlers is not None:
        busiest = nlargest(handlers, registrations, key=attrgetter("items"))
    used = [count / each.maxsize for count, each in zip(waiting, every, strict=True)]
    return Overview(_queue(parts, shown, busiest, sums), used, len(registrations))


def _sums(every: Sequence[Partition[Any]], waiting: int) -> dict[str, Any]:
    accounts = [each.accounts for each in every]
    accepted = sum(each.taken_out for each in accounts) + waiting
    if every[0].entered is not None:
        accepted = sum(each.entered or 0 for each in every)
    sums: dict[str, Any] = {
        "accepted": accepted,
        "waiting": waiting,
        "capacity": sum(each.maxsize for each in every),
        "waiting_producers": sum(each.waiting_producers() for each in every),
        "oldest_age": max(each.ages.age(each) for each in every),
    }
    for name in Totals.__dataclass_fields__.keys() - sums.keys():
        sums[name] = sum(map(attrgetter(name), accounts))
    return sums


def _queue(
    parts: Parts,
    partitions: tuple[PartitionStats, ...],
    handlers: Iterable[Registration],
    sums: dict[str, Any],
) -> BatchQueueStats:
    owned_by, loads = parts.ownership.owned_by, parts.loads.now()
    inside, rebalancer = parts.running_calls.seconds_inside(), parts.tasks.rebalancer
    budget = parts.byte_budget
    limit = None
    if rebalancer is not None and rebalancer.adaptive is not None:
        limit = rebalancer.adaptive.count.stats()
    return BatchQueueStats(
        name=parts.name,
        partitions=partitions,
        drain_tasks=tuple(
            _drain_task(each, owned_by(each.index), loads)
            for each in parts.tasks.drain_tasks
        ),
        last_round=None if rebalancer is None else rebalancer.last_round,
        handlers=tuple(each.stats(inside.get(each, 0.0)) for each in handlers),
        retried=parts.delivery_counts.retried,
        drain_task_limit=limit,
        waiting_bytes=None if budget is None else plain(budget.waiting),
        in_flight_bytes=None if budget is None else plain(budget.in_hands),
        not_closed=parts.hooks.not_closed,
        **sums,
    )


def now_of(stats: BatchQueueStats) -> str:
    """Return the part of a queue's repr that says what is under way."""
    told = [f"waiting={stats.waiting}", f"in_flight={stats.in_flight}"]
    if stats.oldest_age:
        told.append(f"oldest_age={stats.oldest_age:.3g}")
    if stats.waiting_producers:
        told.append(f"waiting_producers={stats.waiting_producers}")
    return " ".join(told)


def _partition(partition: Partition[Any], owner: int | None) -> PartitionStats:
    accounts, entered = partition.accounts, partition.entered
    waiting = len(partition.items)
    # No call before the last three, in which a signal handler could put an item in.
    counts = {
        "index": partition.index,
        "owner": owner,
        "accepted": accounts.taken_out + waiting if entered is None else entered,
        "rejected": accounts.rejected,
        "rejected_closed": accounts.rejected_closed,
        "waiting": waiting,
        "in_flight": accounts.in_flight,
        "handled": accounts.handled,
        "failed": accounts.failed,
        "dropped": accounts.dropped,
        "unhandled": accounts.unhandled,
        "returned": accounts.returned,
        "capacity": partition.maxsize,
        "waiting_producers": partition.waiting_producers(),
        "oldest_age": partition.ages.age(partition),
    }
    return PartitionStats.unchecked(counts)


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
