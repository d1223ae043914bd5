"""The way in: refuse, place, or wait in line."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Awaitable, Iterable, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, Any

from batchqueue_async._chunks import LENGTH
from batchqueue_async._engine.admission import RUNNING, Admission
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    current_call,
    innermost,
)
from batchqueue_async._engine.lifecycle.state import admits, refuse_fork
from batchqueue_async._engine.partitions.chunk_by_partition import (
    Bin,
    Run,
    Sorter,
    sole_partition,
    sorted_bins,
)
from batchqueue_async._engine.partitions.give_way import put_untold
from batchqueue_async._engine.partitions.item_types import (
    WORTH_A_LOOK,
    have_one_type,
    have_type,
)
from batchqueue_async._engine.partitions.loop_waker import LoopWaker
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._engine.partitions.undoing import undo_append
from batchqueue_async._engine.partitions.wait_for_room import (
    Tally,
    leave,
    put_in_turn,
    put_one_in_turn,
)
from batchqueue_async._engine.partitions.waiting_line import LoopWaiter
from batchqueue_async._policies.choices import Offer, WhenFull
from batchqueue_async._policies.errors import with_accepted
from batchqueue_async._policies.selectors import FairSelector

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


class Intake(Admission):
    """Everything about accepting items but the hot path, which `BatchQueue` inlines."""

    __slots__ = (
        "_loop_waker",
        "_sole",
        "_sorter",
        "_waits",
    )

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        placement = parts.placement
        self._sole = placement.sole
        # For chunks that come on the loop: no other thread may use its lists.
        self._sorter: Sorter | None = None
        if isinstance(placement, TypePlacement) and self._sole is None:
            self._sorter = Sorter(placement)
        self._waits = parts.config.when_full is WhenFull.WAIT
        # Set at the first `offer` to a queue without a bridge.
        self._loop_waker: LoopWaker[Any] | None = None

    @property
    def chunk_length(self) -> int:
        """How many items are sorted together: with thousands of partitions more."""
        return max(LENGTH, 128 * len(self._placement.partitions))

    def try_put(self, item: object) -> Run | None:
        """Accept the item if there is room at once; else return where it is to wait."""
        parts = self._parts  # As `admits`, which takes a call more.
        is_here = parts.state is RUNNING and _get_running_loop() is parts.loop
        if not (is_here or admits(parts)):
            return self.refused(item)
        partition = self._sole
        if partition is None:
            partition = self._placement.partition_of(item)
            if len(partition.items) < partition.limit:
                # No edge is met: the hot path of items that a selector places.
                try:
                    partition.items.append(item)
                except BaseException as error:
                    undo_append(partition.items, item, error)
                    raise
                return None
        if len(partition.items) < partition.full_at and partition.line.head is None:
            owner = partition.owner
            if owner and owner.is_over_next_turn and put_untold(partition, item):
                return None
            may_append = partition.is_open_to_threads or partition.is_told_once
            if may_append and partition.append(item):
                return None
            if self._try_offer(partition, item):
                return None
        return partition, (item,)

    def offer(self, item: object) -> Offer:
        """Accept the item if there is room at once, wherever the caller is."""
        waker = self._offered_to()
        if waker is None:
            self.refuse((item,))
            return Offer.CLOSED
        partition = self._sole or self._placement.partition_of(item)
        if partition.append(item) or waker.put(partition, partition.chunk_of(item)):
            return Offer.ACCEPTED
        partition.reject(1)
        # It never opens again: if it was closed at the refusal, it still is.
        return Offer.CLOSED if partition.is_closed else Offer.FULL

    def _offered_to(self) -> LoopWaker[Any] | None:
        """Return what wakes the loop; None if nothing is accepted any more."""
        parts = self._parts
        if parts.ingress is None:
            # Only the loop's own thread may offer: callers from others are refused.
            if not admits(parts):
                return None
            if self._loop_waker is None:
                assert parts.loop is not None
                self._loop_waker = LoopWaker(parts.loop)
            return self._loop_waker
        refuse_fork(parts)
        if parts.state.refuses_items or parts.ingress.loop.is_closed():
            return None
        return parts.ingress

    def waiting_one(
        self, partition: Partition[Any], chunk: Sequence[Any]
    ) -> Awaitable[bool] | None:
        """As `waiting`, for a single item; awaited, it returns whether that is in."""
        if not self._waits or partition.is_closed:
            return None
        loop = self._parts.loop
        assert loop is not None
        call = innermost.get()
        if partition.serves_on_loop and (call is None or call.is_over):
            return put_one_in_turn(partition, chunk, loop)
        return self._put_one(partition, chunk)

    async def _put_one(self, partition: Partition[Any], chunk: Sequence[Any]) -> bool:
        placed = Tally()
        try:
            if (waiting := self.waiting(partition, chunk, placed)) is not None:
                await waiting
        except BaseException as error:
            # The error may come after the item was accepted.
            with_accepted(error, placed.count)
            raise
        return placed.count == 1

    def waiting(
        self, partition: Partition[Any], chunk: Sequence[Any], placed: Tally
    ) -> Awaitable[None] | None:
        """Return an awaitable that accepts a chunk in turn, if it may wait for room."""
        # Not a coroutine itself: each wait would have to go through one more.
        if not self._waits or partition.is_closed:
            return None
        loop = self._parts.loop
        assert loop is not None
        if current_call() is None:
            return put_in_turn(partition, chunk, placed, loop)
        return self._put_from_handler(partition, chunk, placed, loop)

    async def _put_from_handler(
        self,
        partition: Partition[Any],
        chunk: Sequence[Any],
        placed: Tally,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Put in turn, but refuse deadlocks, and lend the permit while it waits."""
        waiter = LoopWaiter(loop, len(chunk), partition)
        partition.wait_in_line(waiter, chunk)
        wait = self._parts.detector.wait_for_room(partition, waiter)
        assert wait is not None
        try:
            async with wait:
                if waiter.granted < waiter.wants:
                    wait.begin()
                while not partition.is_closed:
                    if partition.line.may_finish(waiter):
                        # Before the last item is in: cancelled here, it leaves nothing.
                        await wait.over()
                    partition.notify(waiter.granted)
                    if waiter.granted:
                        partition.offer_in_turn(waiter, chunk)
                        if not waiter.wants:
                            break
                    wait.check()
                    # Also if the producer ahead waits for its permit to fill its slots.
                    wait.begin()
                    asleep = waiter.fall_asleep()
                    if not waiter.is_woken:
                        await asleep
                    waiter.is_woken = False
        finally:
            placed.count += waiter.accepted
            try:
                leave(partition, waiter)
            except BaseException:
                leave(partition, waiter)
                raise

    def put_whole(self, chunk: list[Any]) -> bool:
        """Accept a chunk in one go, if it is for one partition and meets no edge."""
        partition = self._sole
        if partition is None:
            return self._put_routed(chunk)
        items = partition.items
        count, more = len(items), len(chunk)
        if count > partition.limit - more:
            return False
        is_alike = False
        try:
            if more >= WORTH_A_LOOK and count == partition.uniform_prefix:
                is_alike = have_type(chunk, type(items[0]))
                if len(items) != count:
                    # A `__del__`, a signal handler or a metaclass put something in.
                    return False
            items.extend(chunk)
            # Only if nothing else has come in since the look at types.
            if is_alike and len(items) == count + more:
                partition.uniform_prefix = count + more
        except BaseException as error:
            # Raised by a signal handler. Other items may have come in before, too.
            with_accepted(error, more if len(items) >= count + more else 0)
            raise
        return True

    def _put_routed(self, chunk: list[Any]) -> bool:
        partition = self._placement.routes.get(type(chunk[0])) if chunk else None
        if partition is None or len(partition.items) > partition.limit - len(chunk):
            # Do not look at all the types for nothing.
            return False
        if not have_one_type(chunk):
            return False
        items = partition.items
        count, more = len(items), len(chunk)
        if count > partition.limit - more:
            return False
        try:
            items.extend(chunk)
        except BaseException as error:
            with_accepted(error, more if len(items) >= count + more else 0)
            raise
        return True

    async def put_many(self, chunk: Sequence[Any], placed: Tally) -> None:
        """Accept a chunk, and count what was accepted.

        What has room is placed at once; the rest waits, partition by partition.
        """
        for partition, run in self._place(chunk, placed):
            before = placed.count
            if (waiting := self.waiting(partition, run, placed)) is not None:
                await waiting
            if missing := len(run) + before - placed.count:
                partition.reject(missing)

    def _place(self, chunk: Sequence[Any], placed: Tally) -> list[Run]:
        """Place what there is room for; returns the rest by partition."""
        if not chunk:
            return []
        sole = self._sole or sole_partition(chunk, self._placement)
        if sole is not None:
            return self._place_run(sole, chunk, placed)
        placement = self._placement
        if placement.partitions[0].is_open_to_threads or placement.buffers_to_take:
            # Each placing takes the guard, or puts its key's buffer into the ring of
            # fair turns, so the fewest placings are the cheapest.
            bins = sorted_bins(chunk, self._placement)
            return self._place_bins(bins, None, placed)
        if self._sorter is None or not self._sorter.suits(chunk):
            return self._place_each(chunk, placed)
        is_empty = False
        try:
            rest = self._place_bins(self._sorter.sort(chunk), self._sorter, placed)
            is_empty = True
        finally:
            self._sorter.end(is_empty=is_empty)
        return rest

    def _place_run(
        self, partition: Partition[Any], run: Sequence[Any], placed: Tally
    ) -> list[Run]:
        count = 0
        if partition.has_room:
            partition.notify(len(run))
            # Only `offer` looks at types, which has to be done for a sole partition.
            if partition is not self._sole and partition.accept_at_once(run, placed):
                return []
            count = partition.offer(run, placed)
        return [(partition, run[count:])] if count < len(run) else []

    def _place_bins(
        self, bins: Iterable[Bin], sorter: Sorter | None, placed: Tally
    ) -> list[Run]:
        """Place what there is room for; empties the lists, or gives them away."""
        rest: list[Run] = []
        is_expected = is_due = False
        for own in bins:
            partition, run = own.partition, own.run
            count = len(run)
            if len(partition.items) <= partition.limit - count:
                # As in the hot path for one item: no edge is met.
                items: Any = partition.items
                items += run
                placed.count += count
                # Cleared now, while its items are in the processor's caches.
                run.clear()
            elif count:
                # Tell drain tasks once, before items come to empty partitions.
                if not is_expected or (count >= partition.due_size and not is_due):
                    is_expected, is_due = True, count >= partition.due_size
                    self._parts.tasks.expect(is_due=is_due)
                if partition.accept_at_once(run, placed, is_given=True):
                    if sorter is not None:
                        sorter.renew(own)
                    continue
                offered = self._offer(partition, run, placed)
                if offered < count:
                    rest.append((partition, run[offered:]))
                run.clear()
        return rest

    def _place_each(self, chunk: Sequence[Any], placed: Tally) -> list[Run]:
        rest: dict[Partition[Any], list[Any]] = {}
        routes, of = self._placement.routes, self._placement.partition_of
        items_left = iter(chunk)
        begun, missing = len(chunk), 0
        try:
            for item in items_left:
                try:
                    partition = routes.get(type(item)) or of(item)
                    items: Any = partition.items
                    if len(items) >= partition.limit:
                        if self._try_offer(partition, item, placed):
                            missing += 1  # It has been counted there.
                            continue
                        # The partition is full: its later items go to `rest`, too.
                        items = rest.setdefault(partition, [])
                        missing += 1
                except BaseException:
                    begun -= 1
                    raise
                # A signal handler raises only after the append: then the item is in.
                try:
                    items.append(item)
                except MemoryError:
                    begun -= 1
                    raise
        except BaseException:
            begun -= length_hint(items_left)
            raise
        finally:
            placed.count += begun - missing
        return list(rest.items())

    def _try_offer(
        self, partition: Partition[Any], item: object, placed: Tally | None = None
    ) -> bool:
        if len(partition.items) >= partition.full_at:
            return False
        # `has_fast_path` first: one look, and nearly always the only one.
        if not (partition.has_fast_path or partition.has_room):
            return False
        # Before it is accepted: see `Partition.notify`.
        partition.notify(1)
        if partition.accept_at_once((item,), placed):
            return True
        return partition.offer((item,), placed) == 1

    def _offer(
        self, partition: Partition[Any], chunk: Sequence[Any], placed: Tally
    ) -> int:
        if not partition.has_room:
            return 0
        partition.notify(len(chunk))
        return partition.offer(chunk, placed)


def intake_of(parts: Parts) -> Intake:
    """Return the way into a queue; few programs need another than the first one."""
    if parts.byte_budget is not None:
        from batchqueue_async._engine import sized_intake  # noqa: PLC0415

        return sized_intake.SizedIntake(parts, parts.byte_budget)
    if isinstance(parts.config.selector, FairSelector):
        from batchqueue_async._engine import fair_intake  # noqa: PLC0415

        return fair_intake.FairIntake(parts, parts.config.selector)
    return Intake(parts)
