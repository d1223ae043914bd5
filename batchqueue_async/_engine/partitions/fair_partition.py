"""A partition in which each key has a buffer of its own, and its share of each batch.

Producers get the buffer of their item's key from `buffer_of`. Drain tasks see this
partition as any other, and have `allot` say which buffers to take from.

Invariant: a buffer is in the ring while it has items and is not paused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence, Sized
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from batchqueue_async._engine.partitions.accounts import Watcher
from batchqueue_async._engine.partitions.ages import Ages
from batchqueue_async._engine.partitions.deficit_round_robin import DeficitRoundRobin
from batchqueue_async._engine.partitions.key_buffer import (
    KeyBuffer,
    RollingKeyBuffer,
    SharedAccounts,
)
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.pausing import Pause
from batchqueue_async._engine.partitions.unguarded import UNGUARDED
from batchqueue_async._policies.selectors import FairSelector

T = TypeVar("T")


class FairPartition(Partition[T]):
    """Buffers by key, served by deficit round robin."""

    __slots__ = (
        "_buffers",
        "_is_entering",
        "_make_buffer",
        "_oldest",
        "_on_drop",
        "_paused",
        "_ring",
        "_units",
        "near",
        "ready",
    )

    accounts: SharedAccounts

    def __init__(
        self,
        index: int,
        buffer_size: int,
        due_size: int,
        selector: FairSelector[T, Any],
        on_drop: Callable[[list[T]], None] | None,
    ) -> None:
        # Buffers by key, kept only for as long as something else references them.
        self._buffers: WeakValueDictionary[Hashable, KeyBuffer[T]]
        self._buffers = WeakValueDictionary()
        # Whether a new buffer is just being noted there.
        self._is_entering = False
        self._ring: DeficitRoundRobin[KeyBuffer[T]]
        self._ring = DeficitRoundRobin(selector.quantum)
        self._paused: dict[KeyBuffer[T], None] = {}
        # Buffers with items, by keys that are plain, where producers look first.
        self.near: dict[Hashable, KeyBuffer[T]] = {}
        # How many items wait in buffers that are not paused.
        self.ready = 0
        super().__init__(index, buffer_size, due_size)
        self.accounts = SharedAccounts()
        self._units = selector.units_of
        self._make_buffer = KeyBuffer if on_drop is None else RollingKeyBuffer
        self._on_drop = () if on_drop is None else (on_drop,)
        self.ages = FairAges(self._buffers)
        # When the oldest item that is not held back came, if that is known.
        self._oldest: float | None = None
        # Items are never put in here, only into the buffers.
        self.full_at = 0

    def _init(self, maxsize: int) -> None:
        items: Any = BufferedItems(self._buffers, self._ring, self._paused)
        self.items = items

    @property
    def buffer_size(self) -> int:
        """How many items of one key wait at most."""
        return self._maxsize

    @property
    def maxsize(self) -> int:
        """How many items may wait now: `buffer_size` for each key that has a buffer."""
        return self._maxsize * max(1, len(self._buffers))

    @property
    def pausing(self) -> Pause | None:
        """The pause of one of its buffers, if all items that wait are held back."""
        if self._ring or not self._paused:
            return None
        return next(iter(self._paused)).pausing

    @pausing.setter
    def pausing(self, pause: Pause | None) -> None:
        """Do nothing: its buffers are paused, one by one."""

    @property
    def is_changing(self) -> bool:
        """Whether any of its buffers is."""
        return any(each.is_changing for each in live(self._buffers))

    @is_changing.setter
    def is_changing(self, is_changing: bool) -> None:
        """Do nothing: only its buffers change."""

    def buffer_of(self, key: Hashable) -> KeyBuffer[T]:
        """Return a key's buffer, on any thread that holds the guard.

        It is the key's only one for as long as the caller keeps it, or lets nothing in.
        """
        buffer = self._buffers.get(key)
        if buffer is None:
            made = self._make_buffer(self, key, self._units(key), *self._on_drop)
            if self._is_entering:
                # Called in the middle of this by a signal handler or a `__del__`. One
                # of the same key would be replaced, and its items counted by nobody.
                made.is_changing = True
                return made
            self._is_entering = True
            try:
                # The user's function for the weight may have produced an item of it.
                buffer = self._buffers.setdefault(key, made)
            finally:
                self._is_entering = False
        return buffer

    def allot(self, most: int | None) -> list[KeyBuffer[T]]:
        """Return which buffers to take from for one batch; each knows how many."""
        with self.guard:
            self._oldest = None
            shares = self._ring.allot(most)
            for buffer, count in shares.items():
                buffer.allotted = count
            return list(shares)

    def expect(self, buffer: KeyBuffer[T]) -> None:
        """A buffer is about to get items."""
        if buffer.pausing is None:
            self._ring.add(buffer)

    def note(self, buffer: KeyBuffer[T]) -> None:
        """Count a buffer anew after a change; what one call missed, the next counts."""
        ready = 0 if buffer.pausing is not None else len(buffer.items)
        self.ready += ready - buffer.ready
        buffer.ready = ready
        if ready:
            self._ring.add(buffer)
        else:
            self.near.pop(buffer.plain_key, None)
            self._ring.discard(buffer)
            if not self._ring:
                # Corrects a count that Ctrl-C has cut short.
                self.ready = 0

    def pausing_changed(self, buffer: KeyBuffer[T]) -> None:
        """A buffer was paused, or is not any more."""
        is_over = buffer.pausing is None
        if is_over and buffer not in self._paused:
            # The buffer is only being made, so nothing has changed.
            return
        with self.guard:
            if not is_over:
                self._paused[buffer] = None
            self._oldest = None
            self.note(buffer)
            if is_over:
                # Last: until it is out of `_paused`, the next call does all this again.
                self._paused.pop(buffer, None)
        if is_over:
            # The owner may be another drain task by now, and asleep.
            self.notify()

    def is_due(self, coming: int = 0) -> bool:
        return (
            self.ready + coming >= self.due_size
            or self.accounts.watchers is not None
            or self.is_closed
        )

    def oldest(self, now: float) -> float:
        """Return when the oldest item that is not held back came."""
        with self.guard:
            if self._oldest is None and self._ring:
                # Computed once per take, since later items are no older.
                self._oldest = min(each.oldest(now) for each in self._ring.flows())
            return now if self._oldest is None else self._oldest

    def waiting_producers(self) -> int:
        return sum(each.waiting_producers() for each in live(self._buffers))

    def watch(self, watcher: Watcher) -> bool:
        with self.guard:
            return self.accounts.watch_all(watcher, live(self._buffers))

    def take_rest(self, left: list[T]) -> None:
        for each in live(self._buffers):
            each.take_rest(left)

    def open(self) -> None:
        """Open it, and give its due size, clock and linger to all buffers."""
        super().open()
        for each in live(self._buffers):
            each.open_slots = 0
            each.due_size, each.clock = self.due_size, self.clock
            each.ages.clock, each.ages.linger = self.ages.clock, self.ages.linger

    def close(self) -> None:
        self.near.clear()
        super().close()
        for each in live(self._buffers):
            # A producer on a loop that has ended cannot be woken any more.
            with contextlib.suppress(RuntimeError):
                each.close()

    def open_to_threads(self, guard: AbstractContextManager[Any]) -> None:
        self.near.clear()
        super().open_to_threads(guard)
        for each in live(self._buffers):
            each.open_to_threads(guard)

    def abandon(self) -> None:
        self.guard, self.is_open_to_threads = UNGUARDED, False
        self.is_closed = True
        for each in live(self._buffers):
            each.abandon()
        self._buffers = WeakValueDictionary()
        self._ring.clear()
        self.near.clear()
        self._paused.clear()
        self.ready = 0
        self.accounts = SharedAccounts()
        self.entered = None if self.entered is None else 0
        self._init(self._maxsize)

    def _set_limits(self) -> None:
        self.limit = self.guarded_limit = 0


class FairAges(Ages):
    """The oldest item is the oldest one of a buffer."""

    __slots__ = ("_buffers",)

    def __init__(self, buffers: WeakValueDictionary[Hashable, KeyBuffer[Any]]) -> None:
        super().__init__()
        self._buffers = buffers

    def age(self, partition: Partition[Any]) -> float:
        del partition
        return max((each.ages.age(each) for each in live(self._buffers)), default=0.0)


class BufferedItems(Sized):
    """What waits in all buffers; whether anything does is known without counting."""

    __slots__ = ("_buffers", "_paused", "_ring")

    def __init__(
        self,
        buffers: WeakValueDictionary[Hashable, KeyBuffer[Any]],
        ring: DeficitRoundRobin[Any],
        paused: dict[KeyBuffer[Any], None],
    ) -> None:
        self._buffers = buffers
        self._ring = ring
        self._paused = paused

    def __len__(self) -> int:
        return sum(len(each.items) for each in live(self._buffers))

    def __bool__(self) -> bool:
        return bool(self._ring) or any(each.items for each in self._paused)


def live(
    buffers: WeakValueDictionary[Hashable, KeyBuffer[T]],
) -> list[KeyBuffer[T]]:
    """Return the buffers that there are now, also while threads make new ones."""
    found = (known() for known in buffers.valuerefs())
    return [each for each in found if each is not None]


def buffers_to_take(
    partitions: Sequence[Partition[T]], most: int | None
) -> list[Partition[T]]:
    """Return the buffers to take from for one batch of at most `most` items.

    Each of several partitions gets an equal part of the batch, and what those with
    fewer items leave of their parts.
    """
    fair = [each for each in partitions if isinstance(each, FairPartition)]
    if most is not None:
        fair.sort(key=attrgetter("ready"))
    taken_from: list[Partition[T]] = []
    for left, partition in zip(range(len(fair), 0, -1), fair, strict=True):
        part = None if most is None else max(1, most // left)
        buffers = partition.allot(part)
        taken_from += buffers
        if most is not None:
            most -= sum(each.allotted for each in buffers)
    return taken_from
