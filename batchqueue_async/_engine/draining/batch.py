"""Items on their way to one handler, and how a cycle's items become such batches."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from batchqueue_async._engine.draining.batch_stages import WAITING
from batchqueue_async._engine.partitions.accounts import Share, cut, settle
from batchqueue_async._engine.partitions.item_types import first_indexes, have_one_type
from batchqueue_async._engine.partitions.pausing import pause, resume

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.handlers.registry import HandlerRegistry
    from batchqueue_async._engine.partitions.accounts import Outcome
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.routing import (
        SelectorPlacement,
        TypePlacement,
    )
    from batchqueue_async._engine.queue_parts import Parts

T = TypeVar("T")

OrderKey: TypeAlias = "tuple[HandlerLock, Partition[Any]]"


class Batch(Generic[T]):
    """A list of items with one handler; settled once, as a whole.

    `items` is never given away: each attempt gets a copy of its own, so a handler may
    keep or change its list, and what failed or was left is still known.
    """

    # The first share is kept in the batch, as it is nearly always the only one: with
    # many types, each further object that a cycle looks at adds to a batch's price.
    __slots__ = (
        "attempts",
        "count",
        "due",
        "first",
        "give_up_at",
        "is_deferred",
        "is_settled",
        "items",
        "others",
        "partition",
        "registration",
        "stage",
    )

    def __init__(
        self,
        registration: Registration | None,
        items: list[T],
        partition: Partition[T],
        first: int,
    ) -> None:
        self.registration = registration
        self.items = items
        self.partition = partition
        self.count = len(items)
        self.first = first
        self.others: list[Share[T]] | None = None
        self.attempts = 0
        # While deferred: when the next attempt is due, and when retrying ends.
        self.due = 0.0
        self.give_up_at: float | None = None
        self.is_settled = False
        self.is_deferred = False
        self.stage = WAITING

    def __len__(self) -> int:
        return len(self.items)

    @property
    def shares(self) -> list[Share[T]]:
        """Where the items came from, in their order."""
        return [Share(self.partition, self.count, self.first), *(self.others or ())]

    def add(self, items: list[T], partition: Partition[T], first: int) -> None:
        """Add a share from another partition."""
        self.items.extend(items)
        if self.others is None:
            self.others = []
        self.others.append(Share(partition, len(items), first))

    @property
    def order_keys(self) -> tuple[OrderKey, ...]:
        """Keys of its order: it must not overtake an earlier batch that shares one."""
        if self.registration is None:
            return ()
        lock = self.registration.lock
        if self.others is None:
            return ((lock, self.partition),)
        return tuple((lock, share.partition) for share in self.shares)

    def is_kept_out(self, drain_task: int) -> bool:
        """Whether its handler is at work on another batch, and cannot be stopped.

        If that is a call of the same drain task, the batch is kept out whatever its
        partition: the drain task would enter the handler twice.
        """
        registration = self.registration
        if registration is None or not registration.lock.stuck:
            return False
        return registration.lock.keeps_out(registration.mode) or any(
            drain_task == stuck.call.drain_task
            or (
                stuck.batch not in (None, self)
                and not set(self.order_keys).isdisjoint(stuck.batch.order_keys)
            )
            for stuck in registration.lock.stuck
        )

    def settle(self, outcome: Outcome, left: list[T] | None = None) -> None:
        """Book how its items ended; add them to `left`; only the first call counts."""
        if self.is_settled:
            return
        registration, accounts = self.registration, self.partition.accounts
        count = self.count if self.others is None else len(self.items)
        struck: BaseException | None = None
        if self.others is None:
            accounts.settle(outcome, self.count, self.first)
        else:
            struck = self._settle_shares(outcome)
        # No call in between.
        self.is_settled = True
        if left is not None:
            left += self.items
        if registration is not None:
            registration.settled += 1
            registration.items += count
        if accounts.watchers is not None or accounts.lets_go or self.others is not None:
            self.tell()
        if struck is not None:
            raise struck

    def _settle_shares(self, outcome: Outcome) -> BaseException | None:
        """Book all or none; returns what was raised in the middle of it."""
        shares = self.shares
        shares.reverse()
        count = len(shares)
        try:
            settle(shares, outcome)
        except BaseException as error:
            if len(shares) == count:
                raise
            settle(shares, outcome)
            return error
        return None

    def tell(self) -> None:
        """Tell watchers that its items are settled; to be called again if it raises."""
        for share in self.shares:
            share.partition.accounts.tell_watchers()

    def charge(self, seconds: float) -> None:
        """Book the handler's time with the partitions, in proportion to their items."""
        if self.is_settled:
            # It was given up meanwhile.
            return
        for share in self.shares:
            share.partition.accounts.charge(seconds * share.count / len(self.items))

    def pause_partitions(self, holder: object = None) -> None:
        """Keep further items of these partitions back until `resume_partitions`."""
        for share in self.shares:
            pause(share.partition, holder or self)

    def resume_partitions(self, holder: object = None) -> None:
        for share in self.shares:
            resume(share.partition, holder or self)

    def pieces(self, most: int | None) -> list[Batch[T]]:
        """Return batches of at most `most` items, in order, in place of this one."""
        if most is None or len(self.items) <= most:
            return [self]
        return self.cut(range(most, len(self.items), most))

    def as_limited(self) -> list[Batch[T]]:
        """Return this deferred batch in pieces of the size that its handler takes now.

        That is, where the limit of its batches has fallen since it was made.
        """
        if self.registration is None or self.registration.limit is None:
            return [self]
        try:
            pieces = self.pieces(self.registration.max_batch)
        except MemoryError:
            return [self]
        if pieces != [self]:
            for piece in pieces:
                piece.attempts, piece.give_up_at = self.attempts, self.give_up_at
                piece.due = self.due
        return pieces

    def cut(self, places: Sequence[int]) -> list[Batch[T]]:
        """Return batches that begin at 0 and at these positions, in place of this."""
        shares = deque(self.shares)
        starts, ends = (0, *places), (*places, len(self.items))
        chunks = [self.items[a:b] for a, b in zip(starts, ends, strict=True)]
        return [self._piece(chunk, cut(shares, len(chunk))) for chunk in chunks]

    def _piece(self, items: list[T], shares: list[Share[T]]) -> Batch[T]:
        first, *others = shares
        piece = Batch(self.registration, items, first.partition, first.first)
        piece.count, piece.others = first.count, others or None
        return piece


_NO_INDEXES: dict[type, int] = {}


class Grouping(Generic[T]):
    """The batches of a cycle, in the order in which their first items were taken.

    It changes nothing else, so what is cut short can be done again, after `forget`.
    """

    __slots__ = ("_apart", "_batches", "_handlers", "_placement")

    def __init__(
        self,
        handlers: HandlerRegistry,
        placement: TypePlacement | SelectorPlacement,
    ) -> None:
        self._handlers = handlers
        self._placement = placement
        self._batches: dict[Registration | None, Batch[T]] = {}
        # Items for which there was no memory to add them to their handler's batch.
        self._apart: list[Batch[T]] | None = None

    def forget(self) -> None:
        self._batches.clear()
        self._apart = None

    def add(self, partition: Partition[T], items: list[T]) -> None:
        """Add what was taken from a partition; order within it is kept."""
        try:
            lists, firsts = self._sort(partition, items)
        except Exception:  # noqa: BLE001 - a metaclass may do anything
            lists, firsts = self._sort_by_identity(items), _NO_INDEXES
        batches = self._batches
        first = partition.taken_from
        for registration, own in lists.items():
            if firsts:
                first = partition.taken_from + firsts[type(own[0])]
            batch = batches.get(registration)
            if batch is None:
                batches[registration] = Batch(registration, own, partition, first)
            else:
                self._extend(batch, own, partition, first)
        if firsts:
            partition.accounts.note_groups(
                {
                    firsts[type(own[0])] + partition.taken_from: len(own)
                    for own in lists.values()
                }
            )

    def take_from(
        self, partition: Partition[T], most: int | None, undelivered: list[Batch[T]]
    ) -> int:
        """Take from the only partition that is due: nearly always that is one batch."""
        items = partition.take(most)
        count = len(items)
        if (batch := self._sole_batch(partition, items)) is not None:
            # No call from here on: items are in the partition's `taken` or in a batch.
            undelivered += (batch,)
        else:
            self.forget()
            self.add(partition, items)
            undelivered[:0] = reversed(self.batches(most))
            self._batches, self._apart = {}, None
        partition.taken = None
        return count

    def _sole_batch(self, partition: Partition[T], items: list[T]) -> Batch[T] | None:
        """Return all that was taken as one batch, if it is easily seen to be one."""
        handlers = self._handlers
        registration = handlers.consumer
        if handlers.take_limit or not items:
            return None
        try:
            if registration is None:
                # `_have_one_type` and `of`, spelled out: each call is one per batch.
                placement, resolved = self._placement, handlers.resolved
                item_type, count = type(items[0]), len(items)
                if not (
                    count == 1
                    or partition.took_one_type
                    or (placement.lightest and placement.has_one_type(partition))
                    or (
                        type(items[-1]) is item_type
                        and [*map(type, items)].count(item_type) == count
                    )
                ):
                    return None
                if item_type in resolved:
                    registration = resolved[item_type]
                else:
                    registration = handlers.of(item_type)
        except Exception:  # noqa: BLE001 - a metaclass may do anything
            return None
        return Batch(registration, items, partition, partition.taken_from)

    def _extend(
        self, batch: Batch[T], own: list[T], partition: Partition[T], first: int
    ) -> None:
        try:
            batch.add(own, partition, first)
        except MemoryError:
            apart = Batch(batch.registration, own, partition, first)
            self._apart = [*(self._apart or ()), apart]

    def _sort(
        self, partition: Partition[T], items: list[T]
    ) -> tuple[dict[Registration | None, list[T]], dict[type, int]]:
        consumer = self._handlers.consumer
        if consumer is not None:
            return {consumer: items}, _NO_INDEXES
        # Grouping costs more per item than anything else: avoid it where it can be.
        if self._have_one_type(partition, items):
            return {self._handlers.of(type(items[0])): items}, _NO_INDEXES
        lists = self._by_handler(items)
        # Where in the take a handler's first item is matters if somebody waits for it.
        watched = partition.accounts.is_watched
        return lists, first_indexes(items) if watched else _NO_INDEXES

    def _have_one_type(self, partition: Partition[T], items: list[T]) -> bool:
        # Known of the partition, or from when the items came, or looked up now.
        return (
            len(items) == 1
            or partition.took_one_type
            or self._placement.has_one_type(partition)
            or have_one_type(items)
        )

    def _sort_by_identity(self, items: list[T]) -> dict[Registration | None, list[T]]:
        """Sort items of which some have a type that cannot be hashed, or compared."""
        if self._handlers.consumer is not None:
            # A consumer takes every type, so no type can be to blame.
            return {self._handlers.consumer: items}
        try:
            return self._by_identical_type(items)
        except MemoryError as error:
            # The items are taken already: they fail, so as not to be lost.
            return {self._handlers.failing_with(error): items}

    def _by_identical_type(self, items: list[T]) -> dict[Registration | None, list[T]]:
        lists: dict[Registration | None, list[T]] = {}
        for item in items:
            registration = self._handlers.of_identical(type(item))
            lists.setdefault(registration, []).append(item)
        return lists

    def _by_handler(self, items: list[T]) -> dict[Registration | None, list[T]]:
        lists: defaultdict[type, list[T]] = defaultdict(list)
        for item in items:
            lists[type(item)].append(item)
        found = [*map(self._handlers.of, lists)]
        by_handler = dict(zip(found, lists.values(), strict=True))
        if len(by_handler) < len(lists):
            # Types that share a handler keep their order among each other.
            of = dict(zip(lists, found, strict=True))
            by_handler = {registration: [] for registration in by_handler}
            for item in items:
                by_handler[of[type(item)]].append(item)
        return by_handler

    def batches(self, most: int | None) -> list[Batch[T]]:
        """Return the batches, those of more than `most` items in pieces."""
        whole = [*self._batches.values(), *(self._apart or ())]
        have_own = self._handlers.take_limit
        if most is None and not have_own:
            return whole
        pieces: list[Batch[T]] = []
        for batch in whole:
            if have_own and batch.registration is not None:
                most = batch.registration.max_batch
            try:
                pieces.extend(batch.pieces(most))
            except MemoryError:
                # Too long is better than lost.
                pieces.append(batch)
        return pieces


def grouping_of(parts: Parts) -> Grouping[T]:
    if parts.byte_budget is None:
        return Grouping(parts.handlers, parts.placement)
    from batchqueue_async._engine.draining.sized_batches import (  # noqa: PLC0415
        SizedGrouping,
    )

    return SizedGrouping(parts.handlers, parts.placement)
