"""How many partitions a queue has, of which kind, and what they are taken from by.

A kind is imported by the first queue that asks for it: most programs have one kind.

A partition is taken from as a whole. So it goes by the shortest linger and the smallest
batch of the handlers whose types live in it; with another selector than `by_type` these
may live everywhere.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from batchqueue_async._engine.handlers.handler_lock_and_call import SHARED
from batchqueue_async._engine.handlers.registration import HandlerSettings, Registration
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._engine.runtime.loop_time import clock_of
from batchqueue_async._policies.choices import WhenFull
from batchqueue_async._policies.config import AUTO, BatchQueueConfig
from batchqueue_async._policies.partitions import (
    MOST_PARTITIONS,
    DrainTaskPolicy,
    SharedDrainTasks,
)
from batchqueue_async._policies.selectors import FairSelector
from batchqueue_async._policies.sizing import Exact, exact_weight
from batchqueue_async._validation import refuse

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.shared_room import Room
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition
    from batchqueue_async._engine.queue_parts import Parts


# Linger and largest batch, in items and by their sizes.
Terms: TypeAlias = "tuple[float, int, Exact | float]"


class _Wanted:
    """What the handlers of one partition want: each value, and of how many.

    So where one of thousands comes, goes, or finds another limit, the others need not
    be asked.
    """

    __slots__ = ("_lingers", "_mosts", "_sizes")

    def __init__(self) -> None:
        self._lingers: dict[float, int] = {}
        self._mosts: dict[int, int] = {}
        self._sizes: dict[Exact | float, int] = {}

    def count(self, terms: Terms, by: int) -> None:
        linger, most, size = terms
        _count(self._lingers, linger, by)
        _count(self._mosts, most, by)
        _count(self._sizes, size, by)

    def least(self) -> Terms | None:
        if not self._lingers:
            return None
        return min(self._lingers), min(self._mosts), min(self._sizes)


def _count(values: dict[Any, int], value: object, by: int) -> None:
    values[value] = values.get(value, 0) + by
    if not values[value]:
        del values[value]


# Before anything is noted: one for all queues, each of which has a place to note in.
_NOTHING: Final[dict[int | None, _Wanted]] = {}


class BatchTerms:
    """Keeps partitions up with the handlers, from the first that has its own."""

    __slots__ = (
        "_clock",
        "_is_open",
        "_noted",
        "_now",
        "_parts",
        "_wanted",
        "lingers",
    )

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock: Callable[[], float | None] | None = None
        self._is_open = False
        # For ages, on any thread.
        self._now: Callable[[], float] = monotonic
        # Whether anything lingers anywhere.
        self.lingers = parts.config.linger > 0
        # By the partition's index; with another selector than `by_type`, of all.
        self._wanted: dict[int | None, _Wanted] = _NOTHING
        # What each type's handler wants, and where. None while no handler has anything
        # of its own: then nobody has to be asked.
        self._noted: dict[type, tuple[int | None, Terms]] | None = None

    def open(self, clock: Callable[[], float | None]) -> None:
        """Let producers into all partitions; `clock` is None on other threads."""
        self._clock = clock
        self._now = clock_of(asyncio.get_running_loop())
        self._is_open = True
        for partition in self._parts.partitions:
            self.apply_to(partition)

    def apply_to(self, partition: Partition[Any]) -> None:
        """Have a partition go by what is known for it."""
        config = self._parts.config
        queues = self._parts.handlers.settings
        is_by_type = isinstance(self._parts.placement, TypePlacement)
        wanted = self._wanted.get(partition.index if is_by_type else None)
        linger, most, size = (wanted and wanted.least()) or (
            config.linger,
            self._most_of_queue(),
            queues.max_batch_bytes or math.inf,
        )
        with partition.guard:
            partition.due_size = min(most, config.buffer_size)
            partition.clock = self._now
            if self._parts.room is not None:
                cast("SizedPartition[Any]", partition).due_bytes = size
            partition.ages.linger = linger
            partition.ages.clock = self._clock if linger else None
            if self._is_open:
                partition.open()

    def changed(self, registration: Registration) -> None:
        """A handler was registered, replaced or removed, or wants something else."""
        own, queues = registration.settings, self._parts.handlers.settings
        has_own = (
            own.linger != queues.linger
            or registration.max_batch != queues.max_batch
            or own.max_batch_bytes != queues.max_batch_bytes
        )
        if self._noted is None and not has_own:
            return
        is_first = own.linger > 0 and not self.lingers
        self.lingers |= is_first
        if self._noted is None or is_first:
            # Limits that were found before anything lingered are not noted.
            self._noted, self._wanted = {}, {}
            for each in self._parts.handlers:
                self._note(each)
            changed: Iterable[Partition[Any]] = self._parts.partitions
        else:
            changed = self._note_again(registration)
        for partition in changed:
            self.apply_to(partition)

    def limit_changed(self, registration: Registration) -> None:
        """It has found another limit; what lingers is due where that is reached."""
        if not self.lingers:
            return
        if registration.item_type is not None:
            self.changed(registration)
            return
        for partition in self._parts.partitions:
            self.apply_to(partition)

    def _most_of_queue(self) -> int:
        """Return how many items a batch has at most, for all that is not known."""
        consumer, config = self._parts.handlers.consumer, self._parts.config
        declared = self._parts.handlers.settings.fixed_batch
        most = declared if consumer is None else consumer.max_batch
        return most or config.buffer_size

    def _note_again(self, changed: Registration) -> Iterable[Partition[Any]]:
        """Note what the handler of a type wants now; returns where that may count."""
        item_type = changed.item_type
        assert self._noted is not None
        assert item_type is not None
        where = set()
        if item_type in self._noted:
            home, terms = self._noted.pop(item_type)
            self._wanted[home].count(terms, -1)
            where.add(home)
        registration = self._parts.handlers.of_exactly(item_type)
        if registration is not None:
            where.add(self._note(registration))
        partitions = self._parts.partitions
        if None in where:
            return partitions
        return [partitions[home] for home in where if home is not None]

    def _note(self, registration: Registration) -> int | None:
        """Add what one handler wants; returns the partition of its type, if it has."""
        own, size = registration.settings, self._parts.config.buffer_size
        assert self._noted is not None
        assert registration.item_type is not None
        placement, home = self._parts.placement, None
        if isinstance(placement, TypePlacement):
            home = placement.place(registration.item_type).index
        most = registration.max_batch or size
        terms = own.linger, most, own.max_batch_bytes or math.inf
        self._noted[registration.item_type] = home, terms
        self._wanted.setdefault(home, _Wanted()).count(terms, 1)
        return home


class Layout:
    """Makes partitions, as handlers ask for them; they grow, and never shrink."""

    __slots__ = ("_declared", "_parts", "_registered", "_weight", "terms")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # Of all handlers together, and how many there have been.
        self._weight: Exact = 0
        self._registered = 0
        self.terms = BatchTerms(parts)
        # What was declared counts for growth, even if fewer can be busy now.
        policy = parts.config.drain_tasks
        self._declared = 1 if isinstance(policy, SharedDrainTasks) else policy.resolve()
        count = self._count_partitions(0)
        if count > MOST_PARTITIONS:
            rule = f"at most {MOST_PARTITIONS} for {self._declared} drain tasks"
            refuse("partitions", rule, count)
        if count < self._declared:
            logger.warning(
                "%s: %d partitions for %d drain tasks, so only %d are started",
                parts.name,
                count,
                self._declared,
                count,
                queue=parts.name,
            )
        parts.ownership.drain_tasks = min(count, self._declared)
        if isinstance(policy, DrainTaskPolicy) and policy.least is not None:
            parts.ownership.active = min(count, policy.least)
        self._grow(count)

    def abandon(self) -> None:
        """Empty all, without a look at locks: this is a forked child."""
        # Without routes the hot paths, on the loop and on threads, find nothing.
        self._parts.placement.routes.clear()
        for partition in self._parts.partitions:
            partition.abandon()

    def open_to_threads(self, guard: AbstractContextManager[Any]) -> None:
        """Other threads put, too, under `guard`."""
        self._parts.placement.guard = guard
        self._parts.failures.guard = guard
        for partition in self._parts.partitions:
            partition.open_to_threads(guard)

    def register(
        self,
        item_type: type,
        handler: object,
        weight: float,
        settings: HandlerSettings,
    ) -> None:
        parts, exact = self._parts, exact_weight(weight)
        by_type = isinstance(parts.placement, TypePlacement)
        registration = Registration(
            handler,
            item_type=item_type,
            weight=exact,
            order=self._registered,
            mode=item_type if by_type else SHARED,
            settings=settings,
        )
        known = parts.handlers.of_exactly(item_type)
        delta = exact - (known.weight if known else 0)
        count = self._count_partitions(self._weight + delta)
        if count > MOST_PARTITIONS:
            rule = f"small enough for {MOST_PARTITIONS} partitions in all"
            refuse("weight", rule, weight)
        # Nothing has changed before this, so that an error leaves all as it was.
        self._grow(count)
        parts.handlers.add(registration)
        if registration.limit is not None:
            # A handler was registered that needs it.
            parts.delivery.is_timed = True
        if parts.room is not None:
            parts.room.allow_batches_of(settings.max_batch_bytes)
        self._registered += 1
        self._book(item_type, delta)
        self.terms.changed(registration)

    def unregister(self, item_type: type) -> bool:
        """Remove a handler, if there is one; its type stays where it is."""
        removed = self._parts.handlers.remove(item_type)
        if removed is not None:
            self._book(item_type, -removed.weight)
            self.terms.changed(removed)
        return removed is not None

    def learn(
        self,
        registration: Registration,
        items: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """A call of a handler has ended: a limit that is found by trying follows."""
        limit = registration.limit
        if limit is None or isinstance(error, asyncio.CancelledError):
            return
        limit.called(items, seconds, error)
        if limit.size != registration.max_batch:
            registration.max_batch = limit.size
            self._parts.handlers.limit_changed(registration)
            self.terms.limit_changed(registration)

    def _book(self, item_type: type, weight: Exact) -> None:
        self._weight += weight
        if isinstance(self._parts.placement, TypePlacement):
            self._parts.placement.place(item_type, weight)

    def _count_partitions(self, weight: Exact) -> int:
        return self._parts.config.partitions.resolve(self._declared, weight)

    def _grow(self, count: int) -> None:
        parts = self._parts
        first = len(parts.partitions)
        added = [self._new_partition(index) for index in range(first, count)]
        for partition in added:
            if parts.ingress is not None:
                partition.open_to_threads(parts.ingress.guard)
            self.terms.apply_to(partition)
        parts.partitions.extend(added)
        if parts.placement.sole is not None and parts.handlers.consumer is None:
            # Nobody else looks at its items' types when they come.
            sole = parts.placement.sole
            sole.uniform_prefix = max(0, sole.uniform_prefix)
        parts.ownership.grow()

    def _new_partition(self, index: int) -> Partition[Any]:
        parts = self._parts
        on_drop = partial(parts.failures.add, "dropped")
        return _partition_for(parts.config, index, on_drop, parts.room)


def room_of(config: BatchQueueConfig[Any], partitions: Sequence[Any]) -> Room | None:
    """Return what all partitions have in common; None where sizes don't count."""
    if not config.counts_sizes:
        return None
    from batchqueue_async._engine.partitions.shared_room import Room  # noqa: PLC0415

    return Room(config, partitions)


def _partition_for(
    config: BatchQueueConfig[Any],
    index: int,
    on_drop: Callable[[list[Any]], None],
    room: Room | None,
) -> Partition[Any]:
    """Return a partition; `on_drop` gets what newer items displace."""
    size = config.buffer_size
    # Where it is found by trying, the handler's first limit follows.
    due = size if config.max_batch == AUTO else config.max_batch or size
    is_rolling = config.when_full is WhenFull.DROP_OLDEST
    if isinstance(config.selector, FairSelector):
        from batchqueue_async._engine.partitions.fair_partition import (  # noqa: PLC0415
            FairPartition,
        )

        drop = on_drop if is_rolling else None
        fair = FairPartition[Any](index, size, due, config.selector, drop)
        fair.entered = 0 if config.audit else None
        return fair
    kind: Any = Partition
    arguments: tuple[Any, ...] = index, size, due
    if room is not None:
        from batchqueue_async._engine.partitions import sized_partition  # noqa: PLC0415

        kind = sized_partition.SizedPartition
        if is_rolling:
            kind = sized_partition.SizedRollingPartition
        arguments = room, *arguments
    elif is_rolling:
        from batchqueue_async._engine.partitions import (  # noqa: PLC0415
            drop_oldest_partition,
        )

        kind = drop_oldest_partition.RollingPartition
    if config.audit:
        from batchqueue_async._engine.partitions.audited_partition import (  # noqa: PLC0415
            audited,
        )

        kind = audited(kind)
    partition: Partition[Any] = kind(*arguments, *((on_drop,) if is_rolling else ()))
    return partition
