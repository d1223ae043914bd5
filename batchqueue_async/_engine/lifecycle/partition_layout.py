"""How many partitions a queue has and of which kind, and how that grows with handlers.

A kind is imported by the first queue that asks for it: most programs have one kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.handlers.handler_lock_and_call import SHARED
from batchqueue_async._engine.handlers.registration import HandlerSettings, Registration
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._log import logger
from batchqueue_async._policies.choices import WhenFull
from batchqueue_async._policies.config import AUTO, BatchQueueConfig
from batchqueue_async._policies.drain_tasks import (
    DrainTaskPolicy,
    SharedDrainTasks,
    count_of,
)
from batchqueue_async._policies.partitions import MOST_PARTITIONS
from batchqueue_async._policies.selectors import FairSelector
from batchqueue_async._policies.sizing import Exact, exact_weight
from batchqueue_async._validation import refuse, require_int

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.byte_budget import ByteBudget
    from batchqueue_async._engine.queue_parts import Parts


class Layout:
    """Makes partitions as handlers need them; their number never shrinks."""

    __slots__ = ("_declared", "_parts", "_registered", "_weight")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # The weights of all handlers together, and how many were ever registered.
        self._weight: Exact = 0
        self._registered = 0
        # The declared drain tasks count for growth, even if fewer are started.
        policy = parts.config.drain_tasks
        self._declared = 1 if isinstance(policy, SharedDrainTasks) else count_of(policy)
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
        """Empty all partitions without taking locks: this is a forked child."""
        # Without routes the hot paths, on the loop and on threads, find nothing.
        self._parts.placement.routes.clear()
        for partition in self._parts.partitions:
            partition.abandon()

    def open_to_threads(self, guard: AbstractContextManager[Any]) -> None:
        """Let other threads put, too; all hold the lock `guard` for it."""
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
            # An adaptive batch limit needs to know how long calls take.
            parts.delivery_counts.is_timed = True
        if parts.byte_budget is not None:
            parts.byte_budget.allow_batches_of(settings.max_batch_bytes)
        self._registered += 1
        self._book(item_type, delta)
        parts.batch_terms.changed(registration)

    def unregister(self, item_type: type) -> bool:
        """Remove a handler, if there is one; its type keeps its partition."""
        removed = self._parts.handlers.remove(item_type)
        if removed is not None:
            self._book(item_type, -removed.weight)
            self._parts.batch_terms.changed(removed)
        return removed is not None

    def _book(self, item_type: type, weight: Exact) -> None:
        self._weight += weight
        if isinstance(self._parts.placement, TypePlacement):
            self._parts.placement.place(item_type, weight)

    def _count_partitions(self, weight: Exact) -> int:
        count = self._parts.config.partitions.resolve(self._declared, weight)
        # The policy may be a user's own.
        require_int("what partitions resolves to", count, at_least=1)
        return count

    def _grow(self, count: int) -> None:
        parts = self._parts
        first = len(parts.partitions)
        added = [_new_partition(parts, index) for index in range(first, count)]
        for partition in added:
            if parts.ingress is not None:
                partition.open_to_threads(parts.placement.guard)
            parts.batch_terms.apply_to(partition)
        try:
            parts.partitions.extend(added)
            parts.ownership.grow(first)
        except BaseException:
            # A signal handler has raised: items may be in there already, on threads,
            # and a partition without an owner would keep them for ever.
            parts.ownership.grow(first)
            raise
        if parts.placement.sole is not None and parts.handlers.consumer is None:
            # A sole partition notes its items' types itself: no placement does.
            sole = parts.placement.sole
            sole.uniform_prefix = max(0, sole.uniform_prefix)


def byte_budget_of(
    config: BatchQueueConfig[Any], partitions: Sequence[Any]
) -> ByteBudget | None:
    """Return the budget that all partitions share; None where sizes don't count."""
    if not config.counts_sizes:
        return None
    from batchqueue_async._engine.partitions.byte_budget import ByteBudget  # noqa: PLC0415

    return ByteBudget(config, partitions)


def _new_partition(parts: Parts, index: int) -> Partition[Any]:
    config, size = parts.config, parts.config.buffer_size
    # Gets what newer items displace.
    on_drop = partial(parts.failures.add, "dropped")
    # An adaptive batch limit is set when the handler's first limit is known.
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
    if parts.byte_budget is not None:
        kind = _sized_kind(is_rolling=is_rolling)
        arguments = parts.byte_budget, *arguments
    elif is_rolling:
        from batchqueue_async._engine.partitions import (  # noqa: PLC0415
            rolling_partition,
        )

        kind = rolling_partition.RollingPartition
    if config.audit:
        from batchqueue_async._engine.partitions.audited_partition import (  # noqa: PLC0415
            audited,
        )

        kind = audited(kind)
    partition: Partition[Any] = kind(*arguments, *((on_drop,) if is_rolling else ()))
    return partition


def _sized_kind(*, is_rolling: bool) -> type[Partition[Any]]:
    if is_rolling:
        from batchqueue_async._engine.partitions.sized_rolling_partition import (  # noqa: PLC0415
            SizedRollingPartition,
        )

        return SizedRollingPartition
    from batchqueue_async._engine.partitions.sized_partition import (  # noqa: PLC0415
        SizedPartition,
    )

    return SizedPartition
