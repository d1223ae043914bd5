"""The items of one key that wait in a fair partition.

To producers it is a partition of its own: with its bound, its line of producers, its
order. Drain tasks know the fair partition, which says how many each buffer gives.

Invariant: only those that need a buffer reference it: the ring while it has items, a
batch while some of them are in flight, a producer while it puts in or waits. So it is
freed with the last of them, and no producer is left with a buffer that is no longer the
one of its key.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from batchqueue_async._engine.partitions.accounts import Accounts, Outcome, Watcher
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.pausing import Pause
from batchqueue_async._engine.partitions.rolling_partition import (
    RollingPartition,
    cut_off,
)
from batchqueue_async._engine.partitions.told_once import (
    ToldOncePartition,
    take_back,
)
from batchqueue_async._policies.selectors import PLAIN_KEYS

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.fair_partition import FairPartition
    from batchqueue_async._engine.partitions.wait_for_room import Tally


class KeyAccounts(Accounts):
    """Keeps the positions of one key's items, and counts them in its home, too.

    The home's numbers are those that last: the key's are gone with its last item.
    """

    __slots__ = ("_home",)

    def __init__(self, home: Accounts) -> None:
        super().__init__()
        self._home = home

    # Each calls `super` first: if a signal handler raises in there, neither account has
    # changed, and after it no call follows.

    def take(self, count: int) -> int:
        first = super().take(count)
        home = self._home
        home.taken_out += count
        home.in_flight += count
        return first

    def settle(self, outcome: Outcome, count: int, first: int) -> None:
        super().settle(outcome, count, first)
        home = self._home
        home.in_flight -= count
        if outcome == "handled":
            home.handled += count
        elif outcome == "failed":
            home.failed += count
        elif outcome == "unhandled":
            home.unhandled += count
        else:
            home.returned += count

    def settle_some(self, handled: int, left: int, first: int, rest: int) -> None:
        super().settle_some(handled, left, first, rest)
        self._home.in_flight -= handled
        self._home.handled += handled

    def return_waiting(self, count: int) -> None:
        super().return_waiting(count)
        self._home.taken_out += count
        self._home.returned += count

    def charge(self, seconds: float) -> None:
        self._home.charge(seconds)


class SharedAccounts(Accounts):
    """The account of all keys; positions are each key's own, and watched there."""

    __slots__ = ()

    def watch_all(self, watcher: Watcher, buffers: Iterable[KeyBuffer[Any]]) -> bool:
        """Tell `watcher` once, when all items of every key that are in are settled."""
        all_reached = AllReached(watcher, self)
        for each in buffers:
            all_reached.missing += each.watch(all_reached)
        if not all_reached.missing:
            return False
        if self.watchers is None:
            self.watchers = OrderedDict()
        self.watchers[watcher] = self.taken_out
        return True

    def tell_watchers(self) -> None:
        """Do nothing: the keys' own accounts tell."""


class AllReached:
    """Waits until the last of several positions is reached."""

    __slots__ = ("_accounts", "_watcher", "missing")

    def __init__(self, watcher: Watcher, accounts: Accounts) -> None:
        self._watcher = watcher
        self._accounts = accounts
        self.missing = 0

    def reached(self) -> None:
        accounts, watcher = self._accounts, self._watcher
        if self.missing == 1 and accounts.is_watched_by(watcher):
            watcher.reached()
            # No call from here on: it is told once.
            watchers = accounts.watchers
            assert watchers is not None
            del watchers[watcher]
            accounts.watchers = watchers or None
        self.missing -= 1


T = TypeVar("T")

Drop: TypeAlias = Callable[[list[Any]], None]

# An empty deque takes 700 bytes; a list moves all its items when its first ones go.
# Up to here that takes no longer than to cut them off a deque one by one.
_LONGEST_LIST = 1_024


class KeyBuffer(ToldOncePartition[T]):
    """One key's buffer, and its place among those that share a fair partition."""

    # Placed items cannot be taken back, since they are counted elsewhere, too. So
    # producers place their own.
    serves_on_loop = False

    __slots__ = (
        "_pausing",
        "allotted",
        "home",
        "plain_key",
        "ready",
        "spent",
        "weight",
    )

    def __init__(
        self, home: FairPartition[T], key: Hashable, weight: int, *on_drop: Drop
    ) -> None:
        self.home = home
        # None if it is of another type, for which a look-up may call anything.
        self.plain_key = key if type(key) in PLAIN_KEYS else None
        self.weight = weight
        self.spent = 0
        # How many items the next take removes.
        self.allotted = 0
        # How many of its items its home counts as ready to be taken.
        self.ready = 0
        self._pausing: Pause | None = None
        super().__init__(home.index, home.buffer_size, home.due_size, *on_drop)
        self.accounts = KeyAccounts(home.accounts)
        self.ages.clock, self.ages.linger = home.ages.clock, home.ages.linger
        self.clock = home.clock
        self.guard, self.is_open_to_threads = home.guard, home.is_open_to_threads
        self.is_closed = home.is_closed

    @property
    def pausing(self) -> Pause | None:
        """What keeps its items back; other keys' go on."""
        return self._pausing

    @pausing.setter
    def pausing(self, pause: Pause | None) -> None:
        self.open_slots = 0
        self._pausing = pause
        self.home.pausing_changed(self)

    def is_in(self, other: Partition[Any]) -> bool:
        return other is self or other is self.home

    def is_due(self, coming: int = 0) -> bool:
        return self.home.is_due(coming)

    def _tell(self, coming: int, *, may_run: bool) -> None:
        if self.ages.clock is not None and (now := self.ages.clock()) is not None:
            self.oldest(now)
        self.home.notify(coming, may_run=may_run)

    def take(self, most: int | None) -> list[T]:
        """Remove what was allotted."""
        allotted, self.allotted = self.allotted, 0
        taken = super().take(allotted if most is None else min(allotted, most))
        if self.items and not self.is_changing:
            with self.guard:
                self._open_again()
        return taken

    def _open_again(self) -> None:
        self.is_changing = True
        try:
            if self._is_between_edges(1):
                self._open_up(len(self.items))
        finally:
            self.is_changing = False

    def take_rest(self, left: list[T]) -> None:
        super().take_rest(left)
        with self.guard:
            self.home.note(self)

    def reject(self, count: int, *, closed: bool = False) -> None:
        self.home.reject(count, closed=closed or self.is_closed)

    def append(self, item: T) -> bool:
        return self.accept_at_once((item,))

    def put_one(self, item: T) -> bool:
        """Accept an item by the last look at the edges; returns whether it is in."""
        one, home = (item,), self.home
        items: Any = self.items
        # No call from here on. Counted first: a deque's iterator may have garbage
        # collected, and so a `__del__` produce.
        if (
            self.open_slots > 0
            and home.ready + 1 != home.due_size
            and not self.is_changing
        ):
            self.open_slots -= 1
            self.ready += 1
            home.ready += 1
            try:
                items += one
            except MemoryError:
                self.ready -= 1
                home.ready -= 1
                raise
            return True
        return False

    def _open_up(self, count: int) -> None:
        """Note how far it is to the next edge of its own from where so many wait.

        That is its end. Its home is due before it is full.
        """
        most = self._maxsize
        if most > _LONGEST_LIST and type(self.items) is list:
            most = _LONGEST_LIST
        self.open_slots = most - count
        if self.ready != count:
            # Ctrl-C has cut short a call that counts.
            self.home.note(self)
        if self.plain_key is not None and not self.is_open_to_threads:
            self.home.near[self.plain_key] = self

    def _is_between_edges(self, more: int) -> bool:
        if self._pausing is not None or self.home.entered is not None:
            return False
        # See `_append`.
        is_list = type(self.items) is list
        if is_list and len(self.items) + more > _LONGEST_LIST:
            return False
        return super()._is_between_edges(more)

    def _put_between_edges(self, chunk: Sequence[T], tally: Tally | None) -> bool:
        if self.is_changing:
            return False
        self.is_changing = True
        try:
            items: Any = self.items
            home, count, more = self.home, len(items), len(chunk)
            if more > self.open_slots:
                if not self._is_between_edges(more):
                    return False
                self._open_up(count)
            if home.ready < home.due_size <= home.ready + more:
                return False
            self.open_slots -= more
            # No call from here on: all of this is done, or nothing. It has items, so it
            # is in the ring.
            try:
                items += chunk
            except MemoryError:
                take_back(items, count)
                raise
            self.ready += more
            home.ready += more
            if tally is not None:
                tally.count += more
        finally:
            self.is_changing = False
        return True

    def _append(self, chunk: Sequence[T]) -> None:
        # Before the items are in: in the ring, an empty buffer does no harm; out of the
        # ring, one with items would never get its turn.
        self.home.expect(self)
        before = len(self.items)
        try:
            super()._append(chunk)
        finally:
            # Whatever has been raised, the items that are in came in.
            self._count_entered(len(self.items) - before)
        if type(self.items) is list and len(self.items) > _LONGEST_LIST:
            self.items = deque(self.items)

    def _count_entered(self, count: int) -> None:
        if self.home.entered is not None:
            self.home.entered += count

    def _remove(self, most: int | None) -> list[T]:
        items = self.items
        if most is None or len(items) <= most:
            taken = items if isinstance(items, list) else [*items]
            # No call from here on.
            self.items, self.taken, self.taken_from = [], taken, -1
            return taken
        if isinstance(items, deque):
            return cut_off(self, items, most)
        taken = items[:most]
        del items[:most]
        self.taken, self.taken_from = taken, -1
        return taken

    def _set_limits(self) -> None:
        # Called at the end of each change. The limits stay 0: the hot path would not
        # tell the home partition.
        self.limit = self.guarded_limit = self.open_slots = 0
        self.home.note(self)


class RollingKeyBuffer(KeyBuffer[T], RollingPartition[T]):
    """One key's buffer with `DROP_OLDEST`: only items of the key go."""

    _init = RollingPartition._init  # noqa: SLF001
    _remove = RollingPartition._remove  # noqa: SLF001

    def _drop(self, waiting: int, passed: int) -> None:
        own, home = self.accounts, self.home.accounts
        before = own.dropped
        try:
            super()._drop(waiting, passed)
        finally:
            gone = own.dropped - before
            home.taken_out += gone
            home.dropped += gone
            # Items of the new chunk that were displaced at once never entered.
            self._count_entered(max(0, gone - waiting))
