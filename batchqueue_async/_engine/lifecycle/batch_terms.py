"""Partitions' linger and batch limits, where handlers have their own.

A drain task takes from a partition as a whole. So a partition uses the shortest linger
and the smallest batch of all handlers whose items it may hold: with a selector other
than `by_type` that is every handler.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from batchqueue_async._engine.handlers.registration import Registration
from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._loop_time import clock_of
from batchqueue_async._policies.sizing import Exact

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition
    from batchqueue_async._engine.queue_parts import Parts


# The linger, and the largest batch by number of items and by the sum of their sizes.
Terms: TypeAlias = "tuple[float, int, Exact | float]"


def _least(wanted: dict[Terms, int]) -> Terms:
    lingers, mosts, sizes = zip(*wanted, strict=True)
    return min(lingers), min(mosts), min(sizes)


def _count(wanted: dict[Terms, int], terms: Terms, by: int) -> None:
    wanted[terms] = wanted.get(terms, 0) + by
    if not wanted[terms]:
        del wanted[terms]


# Shared by all queues; each replaces it by a dict of its own before it notes anything.
_NOTHING: Final[dict[int | None, dict[Terms, int]]] = {}


class BatchTerms:
    """Keeps the partitions' linger and batch limits up to date with the handlers."""

    __slots__ = (
        "_clock",
        "_lingering",
        "_noted",
        "_now",
        "_parts",
        "_wanted",
        "lingers",
    )

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # None until producers are let in.
        self._clock: Callable[[], float | None] | None = None
        # The partitions' clock; unlike `_clock` it works on any thread.
        self._now: Callable[[], float] = monotonic
        # Whether any items linger; and how many of the noted handlers have a linger.
        self.lingers = parts.config.linger > 0
        self._lingering = 0
        # By the partition's index, or with a selector other than `by_type` under None:
        # for each terms, how many handlers want them. So when one of thousands comes,
        # goes, or finds another limit, the others need not be asked.
        self._wanted: dict[int | None, dict[Terms, int]] = _NOTHING
        # What each type's handler wants, and in which partition. None while no handler
        # has a setting of its own: then there is nothing to follow.
        self._noted: dict[type, tuple[int | None, Terms]] | None = None

    def open(self, clock: Callable[[], float | None]) -> None:
        """Let producers into all partitions; `clock()` is None on other threads."""
        self._clock = clock
        self._now = clock_of(asyncio.get_running_loop())
        for partition in self._parts.partitions:
            self.apply_to(partition)

    def apply_to(self, partition: Partition[Any]) -> None:
        """Set the linger and batch limits of a partition to those known for it."""
        config = self._parts.config
        queues = self._parts.handlers.settings
        is_by_type = isinstance(self._parts.placement, TypePlacement)
        wanted = self._wanted.get(partition.index if is_by_type else None)
        linger, most, size = (
            _least(wanted)
            if wanted
            else (
                config.linger,
                self._most_of_queue(),
                queues.max_batch_bytes or math.inf,
            )
        )
        with partition.guard:
            partition.due_size = min(most, config.buffer_size)
            partition.clock = self._now
            if self._parts.byte_budget is not None:
                cast("SizedPartition[Any]", partition).due_bytes = size
            partition.ages.linger = linger
            partition.ages.clock = self._clock if linger else None
            if self._clock is not None:
                partition.open()

    def changed(self, registration: Registration) -> None:
        """Follow a handler that was registered, replaced or removed, or changed."""
        own, queues = registration.settings, self._parts.handlers.settings
        has_own = (
            own.linger != queues.linger
            or registration.max_batch != queues.max_batch
            or own.max_batch_bytes != queues.max_batch_bytes
        )
        if self._noted is None and not has_own:
            return
        is_first = own.linger > 0 and not self.lingers
        if self._noted is None or is_first:
            # Note all anew: before anything lingers, new limits are not noted.
            self._noted, self._wanted, self._lingering = {}, {}, 0
            for each in self._parts.handlers:
                self._note(each)
            changed: Iterable[Partition[Any]] = self._parts.partitions
        else:
            changed = self._note_again(registration)
        self.lingers = self._parts.config.linger > 0 or self._lingering > 0
        for partition in changed:
            self.apply_to(partition)

    def learn(
        self,
        registration: Registration,
        items: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """Adjust a handler's adaptive batch limit, if it has one, after a call."""
        limit = registration.limit
        if limit is None or isinstance(error, asyncio.CancelledError):
            return
        limit.called(items, seconds, error)
        if limit.size != registration.max_batch:
            registration.max_batch = limit.size
            self._parts.handlers.limit_changed(registration)
            self._limit_changed(registration)

    def _limit_changed(self, registration: Registration) -> None:
        """Follow a handler's new batch limit, at which lingering items are due."""
        if not self.lingers:
            return
        if registration.item_type is not None:
            self.changed(registration)
            return
        for partition in self._parts.partitions:
            self.apply_to(partition)

    def _most_of_queue(self) -> int:
        """Return the largest batch for partitions of which no handler is noted."""
        consumer, config = self._parts.handlers.consumer, self._parts.config
        declared = self._parts.handlers.settings.fixed_batch
        most = declared if consumer is None else consumer.max_batch
        return most or config.buffer_size

    def _note_again(self, changed: Registration) -> Iterable[Partition[Any]]:
        """Note what a type's handler wants now; returns the partitions affected."""
        item_type = changed.item_type
        assert self._noted is not None
        assert item_type is not None
        where = set()
        if item_type in self._noted:
            home, terms = self._noted.pop(item_type)
            _count(self._wanted[home], terms, -1)
            self._lingering -= terms[0] > 0
            where.add(home)
        registration = self._parts.handlers.of_exactly(item_type)
        if registration is not None:
            where.add(self._note(registration))
        partitions = self._parts.partitions
        if None in where:
            return partitions
        return [partitions[home] for home in where if home is not None]

    def _note(self, registration: Registration) -> int | None:
        """Add what one handler wants; returns its type's partition, or None for all."""
        own, size = registration.settings, self._parts.config.buffer_size
        assert self._noted is not None
        assert registration.item_type is not None
        placement, home = self._parts.placement, None
        if isinstance(placement, TypePlacement):
            home = placement.place(registration.item_type).index
        most = registration.max_batch or size
        terms = own.linger, most, own.max_batch_bytes or math.inf
        self._noted[registration.item_type] = home, terms
        _count(self._wanted.setdefault(home, {}), terms, 1)
        self._lingering += own.linger > 0
        return home
