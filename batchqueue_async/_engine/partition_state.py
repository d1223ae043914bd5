"""What one partition is and knows, and the edges that its hot paths must not pass.

Invariants:
* `len(items) < limit` means that one more item meets no edge (empty, due, full), no
  line, no close and no other thread: the hot path may append without asking.
* The first `alike` items, all that wait or fewer, have one type.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from batchqueue_async._engine.accounts import Accounts, Watcher
from batchqueue_async._engine.ages import Ages
from batchqueue_async._engine.hold import Hold
from batchqueue_async._engine.waiting_line import WaitingLine

T = TypeVar("T")

_UNGUARDED: AbstractContextManager[Any] = nullcontext()


class PartitionState(asyncio.Queue[T]):
    """A partition without the ways in and out: `Partition` adds those."""

    # Slots are near each other in memory: that counts, with many partitions.
    __slots__ = (
        "_full_at",
        "_guard",
        "_maxsize",
        "accounts",
        "ages",
        "alike",
        "busy",
        "due_size",
        "guarded_limit",
        "held",
        "index",
        "is_changing",
        "is_closed",
        "is_plain",
        "items",
        "limit",
        "line",
        "taken_from",
        "took_one_type",
    )

    items: list[T] | deque[T]

    def __init__(self, index: int, buffer_size: int, due_size: int) -> None:
        # Not `super().__init__`: the deques and the event that its own `get`, `put` and
        # `join` wait with take more memory than all the rest, and nobody calls those.
        self._maxsize = buffer_size
        self._init(buffer_size)
        self.index = index
        self.line = WaitingLine()
        self.accounts = Accounts()
        self.is_closed = False
        self.is_changing = False
        # Whether nothing but its items counts: it is open, unguarded and without a
        # clock, and nobody waits in line or watches. False also where that is unknown.
        # One look at this spares five at other objects: with thousands of partitions
        # those have left the processor's caches.
        self.is_plain = False
        self.held: Hold | None = None
        # Seconds that handlers have spent on this partition's items.
        self.busy = 0.0
        self.ages = Ages()
        # How many of its first items are known to have one type; -1 if nobody asks. To
        # look at a chunk that has just been made is cheaper than to look at it later.
        self.alike = -1
        # Of the last take: the position of its first item, and whether all of it had
        # one type, as far as that is known. Noted with the take, since threads may
        # displace items the moment after.
        self.taken_from = 0
        self.took_one_type = False
        self.limit = 0
        # The same bound for other threads, which hold the guard.
        self.guarded_limit = 0
        self._guard = _UNGUARDED
        self.due_size = min(due_size, buffer_size)
        self._full_at = buffer_size

    def _init(self, maxsize: int) -> None:
        self.items = []

    def _format(self) -> str:
        # For `repr`: the base class's asks for what is not there.
        state = "closed" if self.is_closed else "open"
        return f"{self.index} {state} waiting={len(self.items)}"

    def qsize(self) -> int:
        return len(self.items)

    @property
    def accepted(self) -> int:
        """Items accepted so far: the position that the next one gets."""
        return self.accounts.taken_out + len(self.items)

    def is_due(self, coming: int = 0) -> bool:
        """A batch must not linger, or will not once so many items have come.

        It is full, waited for, watched, or closing.
        """
        return (
            len(self.items) + coming >= self.due_size
            or self.line.is_short
            or self.accounts.is_watched
            or self.is_closed
        )

    @property
    def has_room(self) -> bool:
        """Whether an item gets in now, without a line."""
        return not (
            self.is_closed
            or self.is_changing
            or self.line.head
            or len(self.items) >= self._full_at
        )

    def open(self) -> None:
        """Let producers in."""
        self._set_limits()

    def close(self) -> None:
        """Refuse new items and wake who waits; waiting items stay."""
        with self._guard:
            self.is_closed = True
            self._set_limits()
            self.line.wake_all()

    def disown(self) -> None:
        """Empty it, in a forked child: its items are the parent's."""
        self._guard = _UNGUARDED
        self.is_closed = True
        self.is_plain = False
        self.limit = self.guarded_limit = 0
        self.items = type(self.items)()
        self.line = WaitingLine()
        self.accounts = Accounts()

    def share(self, guard: AbstractContextManager[Any]) -> None:
        """From now on other threads put, too, and every change holds `guard`."""
        with guard:
            self._guard = guard
            self._set_limits()

    def is_shared(self) -> bool:
        """Whether other threads put, too."""
        return self._guard is not _UNGUARDED

    def reject(self, count: int) -> None:
        """Count refusals that were returned."""
        with self._guard:
            self.accounts.rejected += count

    def at_rest(self) -> AbstractContextManager[Any]:
        """Keep other threads out, so that what is read inside is of one moment."""
        return self._guard

    def oldest(self, now: float) -> float:
        """Return when the oldest waiting item came; called on the loop, with linger."""
        with self._guard:
            return self.ages.oldest(self.accounts.taken_out, now)

    def watch(self, watcher: Watcher) -> bool:
        """Tell `watcher` once when all that is accepted by now is settled.

        Returns:
            False if it is settled already, and nobody will be told.
        """
        with self._guard:
            if not self.accounts.watch(self.accepted, watcher):
                return False
            self.is_plain = False
            return True

    def hold(self) -> None:
        """Keep its items back until `release`, called as often."""
        if self.held is None:
            self.held = Hold()
        self.held.add()

    def release(self) -> None:
        """Undo one `hold`."""
        if self.held is not None and not self.held.remove():
            self.held = None

    def _set_limits(self) -> None:
        if self.line.head or self.is_closed:
            self.is_plain = False
            self.limit = self.guarded_limit = 0
            return
        is_alone = self._guard is _UNGUARDED
        self.is_plain = (
            is_alone and self.ages.clock is None and self.accounts.watchers is None
        )
        count, limit = len(self.items), 0
        if count:
            limit = (self.due_size if count < self.due_size else self._maxsize) - 1
        self.guarded_limit = limit
        self.limit = limit if is_alone else 0
