"""How many partitions a queue has, and how that grows with its handlers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.handlers.handler_call import SHARED
from batchqueue_async._engine.handlers.registry import Registration
from batchqueue_async._engine.handlers.settings import HandlerSettings
from batchqueue_async._engine.lifecycle.terms import Terms
from batchqueue_async._engine.partitions.making import new_partition
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.drain_tasks import DrainTaskPolicy, SharedDrainTasks
from batchqueue_async._policies.partitions import MOST_PARTITIONS
from batchqueue_async._policies.validation import refuse
from batchqueue_async._policies.weights import Exact, exact_weight

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")


class Layout(Generic[T]):
    """Makes partitions, as handlers ask for them; they grow, and never shrink."""

    __slots__ = ("_declared", "_parts", "_registered", "_weight", "terms")

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        # Of all handlers together, and how many there have been.
        self._weight: Exact = 0
        self._registered = 0
        self.terms = Terms(parts)
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
        """Add a handler, and the partitions it asks for."""
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
            parts.delivery.time_calls()
        if parts.room is not None:
            parts.room.allow_batches_of(settings.max_batch_bytes)
        self._registered += 1
        self._book(item_type, delta)
        self.terms.changed(registration, is_new=known is None)

    def unregister(self, item_type: type) -> bool:
        """Remove a handler, if there is one; its type stays where it is."""
        removed = self._parts.handlers.remove(item_type)
        if removed is not None:
            self._book(item_type, -removed.weight)
            self.terms.changed(removed, is_new=False)
        return removed is not None

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

    def _new_partition(self, index: int) -> Partition[T]:
        parts = self._parts
        on_drop = partial(parts.failures.add, "dropped")
        return new_partition(parts.config, index, on_drop, parts.room)
