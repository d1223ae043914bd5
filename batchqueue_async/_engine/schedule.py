"""When one drain task takes what, and how long it may sleep in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from batchqueue_async._engine.grouping import Grouping
from batchqueue_async._engine.ownership import Ownership
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.registration import Registration
from batchqueue_async._policies.backoff import IdleBackoff

T = TypeVar("T")


class Share(Protocol[T]):
    """What a drain task sees of its queue; asked anew in every cycle."""

    ownership: Ownership

    def partitions_of(self, drain_task: int) -> list[Partition[T]]:
        """Return the partitions that it owns now."""

    def owner_of(self, partition: Partition[T]) -> int | None:
        """Return the drain task that owns it now, or None in a handoff."""

    @property
    def have_hooks(self) -> bool:
        """Whether there may be handlers with hooks."""

    def handlers_of(self, drain_task: int) -> list[Registration]:
        """Return the handlers whose hooks it calls now."""

    def take_retired(self) -> list[Registration]:
        """Take the handlers that are out of use and owed their `on_close`."""

    def put_back(self, retired: list[Registration]) -> None:
        """Give those back that have not got it."""

    def is_in_use(self, registration: Registration) -> bool:
        """Whether the registration's handler is registered again, for any type."""

    def lingers_for(self, registration: Registration) -> bool:
        """Whether items for the handler wait for company."""

    def grouping(self) -> Grouping[T]:
        """Return an empty grouping."""


@dataclass(slots=True, eq=False, repr=False)
class Pace:
    """How a drain task batches and naps."""

    idle: IdleBackoff
    linger: float
    max_batch: int | None
    # One batch for all partitions: when one is due, all are.
    is_one_batch: bool
    # A handler's items may be in any partition: all must be taken before it is called.
    is_mixed: bool


# Partitions that a cycle takes from together. With thousands of them, what is taken
# long before its handler is called has left the processor's caches by then.
TOGETHER = 128

# Loops wait in whole milliseconds, rounded up: that is what epoll counts in. Who is
# to gather items for less than half of one would do it for twice as long and more.
TICK = 0.001


class Schedule(Generic[T]):
    """Looks at the partitions of one drain task, and decides by the clock."""

    __slots__ = (
        "_drain_task",
        "_owned",
        "_pace",
        "_seen",
        "_share",
    )

    def __init__(self, share: Share[T], drain_task: int, pace: Pace) -> None:
        self._share = share
        self._drain_task = drain_task
        self._pace = pace
        # Its partitions, as of a version of the ownership.
        self._owned: list[Partition[T]] = []
        self._seen = -1

    def due(self, now: float) -> Iterable[list[Partition[T]]]:
        """Return the partitions that this cycle takes from, part by part."""
        waiting = self.waiting()
        due = waiting
        if self._pace.linger:
            due = [each for each in waiting if self._due_at(each, now) <= now]
            if due and self._pace.is_one_batch:
                due = waiting
        if self._pace.is_mixed or len(due) <= TOGETHER:
            return (due,)
        return self._in_parts(due)

    def _in_parts(self, due: list[Partition[T]]) -> Iterator[list[Partition[T]]]:
        owner_of, own = self._share.owner_of, self._drain_task
        for start in range(0, len(due), TOGETHER):
            # Handlers were called since it was looked at.
            yield [
                partition
                for partition in due[start : start + TOGETHER]
                if partition.items
                and partition.held is None
                and owner_of(partition) == own
            ]

    def waiting(self) -> list[Partition[T]]:
        """Return the partitions from which something might be taken."""
        ownership = self._share.ownership
        if ownership.version != self._seen:
            self._seen = ownership.version
            self._owned = self._share.partitions_of(self._drain_task)
        return [each for each in self._owned if each.items and each.held is None]

    def arrival_ends_nap(
        self, partition: Partition[T], since: float, now: float
    ) -> float:
        """Return when a nap has to end for what just came to the partition.

        Args:
            partition: Where it came.
            since: When items began to gather.
            now: The loop's time.
        """
        if self._pace.linger:
            return self._due_at(partition, now)
        return self._gathered_at(since, now)

    def arrivals_end_nap(self, since: float, now: float) -> float:
        """Return the same for what comes now to partitions that are empty."""
        if self._pace.linger:
            return now + self._pace.linger
        return self._gathered_at(since, now)

    def gather_until(
        self, waiting: list[Partition[T]], started: float, now: float
    ) -> float:
        """Return when the next cycle may start after one that delivered.

        Items gather for at most the shortest nap since the last cycle's start, unless
        something is due: nothing waits longer for it, since it came after that start.
        Without this, fast producers on threads would get tiny batches.
        """
        if self._pace.linger or any(each.is_due() for each in waiting):
            return now
        return self._gathered_at(started, now)

    def _gathered_at(self, since: float, now: float) -> float:
        """Return when items have gathered for long enough: one shortest nap."""
        shortest = self._pace.idle.shortest
        until = since + shortest
        return now if until - now < min(TICK, shortest) / 2 else until

    def nap_until(
        self,
        waiting: list[Partition[T]],
        parked: Iterable[float],
        empty_cycles: int,
        now: float,
    ) -> float | None:
        """Return when a nap ends by itself; None where only an arrival ends it.

        Args:
            waiting: Partitions from which something might be taken.
            parked: When parked batches are due.
            empty_cycles: How many cycles found nothing since the last one that did.
            now: The loop's time.
        """
        ends = [*parked]
        if waiting:
            ends.extend([self._due_at(each, now) for each in waiting])
        handlers = self._share.handlers_of(self._drain_task)
        if handlers and any(each.on_idle for each in handlers):
            ends.append(now + self._pace.idle.delay(empty_cycles))
        return min(ends) if ends else None

    def _due_at(self, partition: Partition[T], now: float) -> float:
        if partition.is_due() or not self._pace.linger:
            return now
        return partition.oldest(now) + self._pace.linger
