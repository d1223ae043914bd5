"""What partitions go by where handlers have a `max_batch` or `linger` of their own.

A partition is taken from as a whole. So it goes by the shortest linger and the smallest
batch of the handlers whose types live in it; with another selector than `by_type` these
may live everywhere.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._engine.runtime.loop_time import clock_of
from batchqueue_async._policies.sizing import Exact

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition
    from batchqueue_async._engine.queue_parts import Parts


class BatchTerms:
    """Keeps partitions up with the handlers, from the first that has its own."""

    __slots__ = ("_clock", "_is_open", "_known", "_now", "_parts", "lingers")

    def __init__(self, parts: Parts[Any]) -> None:
        self._parts = parts
        self._clock: Callable[[], float | None] | None = None
        self._is_open = False
        # For ages, on any thread.
        self._now: Callable[[], float] = monotonic
        # Whether anything lingers anywhere.
        self.lingers = parts.config.linger > 0
        # Linger and largest batch, in items and by their sizes, by partition's index.
        # None while no handler has any of its own: then nobody has to be asked.
        self._known: dict[int, tuple[float, int, Exact | float]] | None = None

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
        terms = (
            config.linger,
            self._most_of_queue(),
            queues.max_batch_bytes or math.inf,
        )
        if self._known is not None:
            terms = self._known.get(partition.index, terms)
        linger, most, size = terms
        with partition.guard:
            partition.due_size = min(most, config.buffer_size)
            partition.clock = self._now
            if self._parts.room is not None:
                cast("SizedPartition[Any]", partition).due_bytes = size
            partition.ages.linger = linger
            partition.ages.clock = self._clock if linger else None
            if self._is_open:
                partition.open()

    def changed(self, registration: Registration, *, is_new: bool) -> None:
        """A handler was registered for a new type, or else replaced or removed."""
        own, queues = registration.settings, self._parts.handlers.settings
        has_own = (
            own.linger != queues.linger
            or registration.max_batch != queues.max_batch
            or own.max_batch_bytes != queues.max_batch_bytes
        )
        if self._known is None and not has_own:
            return
        if self._known is None or not is_new:
            self._known = {}
            for each in self._parts.handlers:
                self._note(each)
            changed: Iterable[Partition[Any]] = self._parts.partitions
        else:
            changed = self._note(registration)
        self.lingers |= own.linger > 0
        for partition in changed:
            self.apply_to(partition)

    def limit_changed(self, registration: Registration) -> None:
        """It has found another limit; what lingers is due where that is reached."""
        if not self.lingers:
            return
        if registration.item_type is not None:
            self.changed(registration, is_new=False)
            return
        for partition in self._parts.partitions:
            self.apply_to(partition)

    def _most_of_queue(self) -> int:
        """Return how many items a batch has at most, for all that is not known."""
        consumer, config = self._parts.handlers.consumer, self._parts.config
        declared = self._parts.handlers.settings.fixed_batch
        most = declared if consumer is None else consumer.max_batch
        return most or config.buffer_size

    def _note(self, registration: Registration) -> list[Partition[Any]]:
        """Add what one handler wants; returns the partitions that may hold its type."""
        own, size = registration.settings, self._parts.config.buffer_size
        assert self._known is not None
        assert registration.item_type is not None
        placement, homes = self._parts.placement, self._parts.partitions
        if isinstance(placement, TypePlacement):
            homes = [placement.place(registration.item_type)]
        most = registration.max_batch or size
        terms = own.linger, most, own.max_batch_bytes or math.inf
        for home in homes:
            known = self._known.get(home.index, terms)
            self._known[home.index] = (
                min(known[0], terms[0]),
                min(known[1], terms[1]),
                min(known[2], terms[2]),
            )
        return homes
