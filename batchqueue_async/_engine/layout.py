"""Partitions, handlers and owners of one queue, and how they grow together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.failure_log import FailureLogs
from batchqueue_async._engine.gate import TOGETHER
from batchqueue_async._engine.grouping import Grouping
from batchqueue_async._engine.handlers import Handlers
from batchqueue_async._engine.loads import Loads
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.ownership import Ownership
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.placement import TypePlacement, placement_for
from batchqueue_async._engine.registration import Registration
from batchqueue_async._engine.repeats import Repeats
from batchqueue_async._engine.rolling_partition import RollingPartition
from batchqueue_async._policies.buffering import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.drain_tasks import SharedDrainTasks
from batchqueue_async._policies.partitions import MOST_PARTITIONS
from batchqueue_async._policies.validation import refuse
from batchqueue_async._policies.weights import Exact, exact_weight

T = TypeVar("T")


class Layout(Generic[T]):
    """Who and what there is; it grows, and never shrinks."""

    __slots__ = (
        "_clock",
        "_config",
        "_declared",
        "_guard",
        "_hooked",
        "_hooked_version",
        "_is_open",
        "_registered",
        "_weight",
        "failures",
        "handlers",
        "loads",
        "ownership",
        "partitions",
        "placement",
        "repeats",
    )

    def __init__(self, name: str, config: BatchQueueConfig[T]) -> None:
        self._config = config
        self.failures = FailureLogs()
        self.repeats = Repeats()
        self._weight: Exact = 0
        self._guard: AbstractContextManager[Any] | None = None
        self._is_open = False
        self._clock: Callable[[], float | None] | None = None
        self.partitions: list[Partition[T]] = []
        measure = config.rebalancing.measure if config.rebalancing else "items"
        self.loads = Loads(self.partitions, measure)
        self.handlers = Handlers(config.consumer)
        self.placement = placement_for(
            config.selector,
            self.partitions,
            self.handlers,
            grows=config.partitions.grows,
        )
        self._hooked: dict[int, list[Registration]] = {}
        self._hooked_version = (-1, -1)
        self._registered = 0
        # What was declared counts for growth, even if fewer can be busy now.
        self._declared = (
            1
            if isinstance(config.drain_tasks, SharedDrainTasks)
            else config.drain_tasks.resolve()
        )
        count = self._count_partitions(0)
        if count > MOST_PARTITIONS:
            rule = f"at most {MOST_PARTITIONS} for {self._declared} drain tasks"
            refuse("partitions", rule, count)
        if count < self._declared:
            logger.warning(
                "%s: %d partitions for %d drain tasks, so only %d are started",
                name,
                count,
                self._declared,
                count,
            )
        self.ownership = Ownership(min(count, self._declared))
        self._grow(count)

    def open(self, clock: Callable[[], float | None]) -> None:
        """Let producers in, now and into what grows later.

        Args:
            clock: Tells the loop's time; None on other threads.
        """
        self._clock = clock if self._config.linger else None
        self._is_open = True
        for partition in self.partitions:
            self._open(partition)

    def close(self) -> None:
        for partition in self.partitions:
            # Who waits on a loop that has ended cannot be woken any more.
            with contextlib.suppress(RuntimeError):
                partition.close()

    def disown(self) -> None:
        """Empty all, without a look at locks: this is a forked child."""
        # Without routes the hot paths, on the loop and on threads, find nothing.
        self.placement.routes.clear()
        for partition in self.partitions:
            partition.disown()

    def share(self, guard: AbstractContextManager[Any]) -> None:
        """Other threads put, too, under `guard`."""
        self._guard = guard
        self.placement.guard = guard
        self.failures.guard = guard
        for partition in self.partitions:
            partition.share(guard)

    def register(
        self, item_type: type, handler: object, weight: float
    ) -> Registration | None:
        """Add a handler and the partitions it asks for; returns what it replaces."""
        exact = exact_weight(weight)
        by_type = isinstance(self.placement, TypePlacement)
        registration = Registration(
            handler,
            item_type=item_type,
            weight=exact,
            order=self._registered,
            slot=item_type if by_type else TOGETHER,
        )
        known = self.handlers.of_exactly(item_type)
        delta = exact - (known.weight if known else 0)
        count = self._count_partitions(self._weight + delta)
        if count > MOST_PARTITIONS:
            rule = f"small enough for {MOST_PARTITIONS} partitions in all"
            refuse("weight", rule, weight)
        # Nothing has changed before this, so that an error leaves all as it was.
        self._grow(count)
        replaced = self.handlers.add(registration)
        self._registered += 1
        self._weight += delta
        self._place(item_type, delta)
        return replaced

    def unregister(self, item_type: type) -> Registration | None:
        """Remove a handler; its type stays where it is."""
        removed = self.handlers.remove(item_type)
        if removed is not None:
            self._weight -= removed.weight
            self._place(item_type, -removed.weight)
        return removed

    def partitions_of(self, drain_task: int) -> list[Partition[T]]:
        return [self.partitions[p] for p in self.ownership.owned_by(drain_task)]

    @property
    def have_hooks(self) -> bool:
        """Whether there may be a handler with `on_idle` or `on_flush`."""
        return self.handlers.have_hooks

    def handlers_of(self, drain_task: int) -> list[Registration]:
        """Return the handlers with `on_idle` or `on_flush` whose home it owns."""
        if not self.handlers.have_hooks:
            return []
        version = (self.handlers.version, self.ownership.version)
        if version != self._hooked_version:
            self._hooked_version = version
            self._hooked = {}
        if drain_task not in self._hooked:
            self._hooked[drain_task] = [
                each
                for each in self.handlers
                if each.has_hooks and self.calls(drain_task, each)
            ]
        return self._hooked[drain_task]

    def take_retired(self) -> list[Registration]:
        return self.handlers.take_retired()

    def put_back(self, retired: list[Registration]) -> None:
        self.handlers.put_back(retired)

    def is_in_use(self, registration: Registration) -> bool:
        return self.handlers.is_in_use(registration)

    def calls(self, drain_task: int, registration: Registration) -> bool:
        """Whether the drain task calls this handler's hooks."""
        if registration.item_type is None:
            return True
        return self.ownership.owner_of(self._home(registration)) == drain_task

    def home_owner(self, registration: Registration) -> int | None:
        """Return the drain task that calls the handler's hooks; None for a consumer."""
        if registration.item_type is None:
            return None
        return self.ownership.last_owner(self._home(registration))

    def lingers_for(self, registration: Registration) -> bool:
        """Whether items that may be for the handler wait for their batch to fill."""
        if not self._config.linger:
            return False
        if isinstance(self.placement, TypePlacement) and registration.item_type:
            return bool(self.partitions[self._home(registration)].items)
        return any(partition.items for partition in self.partitions)

    def grouping(self) -> Grouping[T]:
        return Grouping(self.handlers, self.placement.has_one_type)

    def owner_of(self, partition: Partition[T]) -> int | None:
        """Return the drain task that may take from it, or None in a handoff."""
        return self.ownership.owner_of(partition.index)

    def _home(self, registration: Registration) -> int:
        if isinstance(self.placement, TypePlacement):
            assert registration.item_type is not None
            return self.placement.place(registration.item_type).index
        return registration.order % len(self.partitions)

    def _place(self, item_type: type, weight: Exact) -> None:
        if isinstance(self.placement, TypePlacement):
            self.placement.place(item_type, weight)

    def _count_partitions(self, weight: Exact) -> int:
        return self._config.partitions.resolve(self._declared, weight)

    def _grow(self, count: int) -> None:
        added = [
            self._new_partition(index) for index in range(len(self.partitions), count)
        ]
        for partition in added:
            if self._guard is not None:
                partition.share(self._guard)
            if self._is_open:
                self._open(partition)
        self.partitions.extend(added)
        if self.placement.sole is not None and self.handlers.consumer is None:
            # Nobody else looks at its items' types when they come.
            self.partitions[0].alike = max(0, self.partitions[0].alike)
        self.ownership.grow(len(self.partitions))

    def _open(self, partition: Partition[T]) -> None:
        partition.ages.clock = self._clock
        partition.open()

    def _new_partition(self, index: int) -> Partition[T]:
        size = self._config.buffer_size
        due = self._config.max_batch or size
        if self._config.when_full is WhenFull.DROP_OLDEST:
            on_drop = partial(self.failures.add, "dropped")
            return RollingPartition(index, size, due, on_drop)
        return Partition(index, size, due)
