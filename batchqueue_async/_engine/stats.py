"""What a queue looks like at one moment: frozen, and apart from the queue."""

from __future__ import annotations

from dataclasses import dataclass

from batchqueue_async._policies.value import Value


@dataclass(init=False, frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Totals(Value):
    """What became of items; `accepted` is the sum of all the others but `rejected`."""

    accepted: int
    """Items that were let in, so far."""
    rejected: int
    """Items that were refused because of a full partition or a closed queue."""
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

    @property
    def used_fraction(self) -> float:
        """How full it is, from 0.0 to 1.0."""
        return self.waiting / self.capacity


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class PartitionStats(Totals):
    """One partition at one moment."""

    index: int
    """The number by which selectors name it."""
    owner: int | None
    """The drain task that may take from it, or None while it is in a handoff."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
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


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
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


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
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
            msg = f"n must be >= 0, got {n}"
            raise ValueError(msg)
        by_fill = sorted(self.partitions, key=lambda each: (-each.waiting, each.index))
        return tuple(by_fill[:n])
