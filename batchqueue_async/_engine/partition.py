"""A bounded FIFO of waiting items: an `asyncio.Queue` with bulk take and a fair line.

Invariants:
* `len(items) + line.reserved <= maxsize`, at every moment.
* While somebody waits in line, room goes to the line: nobody else gets in.
* At most one take is outstanding: the next one comes when all its items are settled,
  so "settled up to a position" needs no record of single batches.
* `0 < len(items) < limit` means that one more item meets no edge (empty, due, full),
  no line, no close and no other thread: the hot path may append without asking.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from batchqueue_async._engine.accounts import Accounts, Outcome
from batchqueue_async._engine.waiting_line import Waiter, WaitingLine

T = TypeVar("T")

_UNGUARDED: AbstractContextManager[Any] = nullcontext()


class Watcher(Protocol):
    """Somebody who waits until a position of the partition is settled."""

    def reached(self) -> None:
        """The position is settled."""


class Partition(asyncio.Queue[T]):
    """One partition. Every change is a plain method: decide here, await elsewhere."""

    items: list[T] | deque[T]

    def __init__(self, index: int, buffer_size: int, due_size: int) -> None:
        super().__init__(buffer_size)
        self.index = index
        self.line = WaitingLine()
        self.accounts = Accounts()
        self.is_closed = False
        self._holds = 0
        self._freed: list[asyncio.Future[None]] = []
        # Seconds that handlers have spent on this partition's items.
        self.busy = 0.0
        # When the oldest waiting item was first seen by the loop.
        self.since: float | None = None
        self.limit = 0
        # The same bound for other threads, which hold the guard.
        self.guarded_limit = 0
        self._guard = _UNGUARDED
        self._due_size = min(due_size, buffer_size)
        self._watchers: list[tuple[int, Watcher]] = []
        self._unsettled_from = 0

    def _init(self, maxsize: int) -> None:
        self.items = []

    def qsize(self) -> int:
        return len(self.items)

    @property
    def accepted(self) -> int:
        """Items accepted so far: the position that the next one gets."""
        return self.accounts.taken_out + len(self.items)

    @property
    def is_due(self) -> bool:
        """A batch must not linger: full, waited for, watched, or closing."""
        return (
            len(self.items) >= self._due_size
            or self.line.is_short
            or bool(self._watchers)
            or self.is_closed
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
        self.limit = self.guarded_limit = 0
        self.items = type(self.items)()
        self.line = WaitingLine()
        self.accounts = Accounts()
        self._watchers = []

    def share(self, guard: AbstractContextManager[Any]) -> None:
        """From now on other threads put, too, and every change holds `guard`."""
        with guard:
            self._guard = guard
            self._set_limits()

    def offer(self, chunk: Sequence[T]) -> int:
        """Accept as many of the chunk's first items as there is room for."""
        with self._guard:
            if self.is_closed or len(self.line):
                return 0
            return self._accept(chunk)

    def wait_in_line(self, waiter: Waiter) -> None:
        with self._guard:
            self.line.join(waiter)
            self._serve_line()

    def offer_in_turn(self, waiter: Waiter, chunk: Sequence[T]) -> int:
        """Accept what the waiter holds slots for; 0 before its turn."""
        with self._guard:
            count = 0 if self.is_closed else self.line.turn_of(waiter)
            if count:
                self._append(chunk[:count])
                self.line.filled(waiter, count)
                self._serve_line()
            return count

    def leave_line(self, waiter: Waiter) -> None:
        """A cancelled, late or refused waiter passes its slots on."""
        with self._guard:
            self.line.leave(waiter)
            self._serve_line()

    def take(self, most: int | None) -> list[T]:
        """Remove up to `most` of the oldest items; they are in flight from now on."""
        with self._guard:
            self._unsettled_from = self.accounts.taken_out
            taken = self._remove(most)
            self.accounts.take(len(taken))
            self._serve_line()
            return taken

    def reject(self, count: int) -> None:
        """Count refusals that were returned."""
        with self._guard:
            self.accounts.rejected += count

    def settle(self, outcome: Outcome, count: int) -> None:
        """`count` of the items in flight have ended."""
        self.accounts.settle(outcome, count)
        if self._watchers and not self.accounts.in_flight:
            self._tell_watchers()

    def withdraw(self) -> list[T]:
        """Take every waiting item out, unhandled: the deadline has come."""
        with self._guard:
            left = self._remove(None)
            self.accounts.remove_waiting("returned", len(left))
        self._tell_watchers()
        return left

    @property
    def is_held(self) -> bool:
        """Whether a batch is parked, or cannot be stopped: no take meanwhile."""
        return self._holds > 0

    def hold(self) -> None:
        """Keep the waiting items back, until as many `release`."""
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if not self._holds:
            for free in self._freed:
                if not free.done():
                    free.set_result(None)
            self._freed.clear()

    def freed(self) -> asyncio.Future[None]:
        """Return a future that is done when nothing holds the partition."""
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._holds:
            self._freed.append(free)
        else:
            free.set_result(None)
        return free

    def watch(self, watcher: Watcher) -> bool:
        """Tell `watcher` once when all that is accepted by now is settled.

        Returns:
            False if it is settled already, and nobody will be told.
        """
        with self._guard:
            position = self.accepted
        if position <= self._settled_to():
            return False
        self._watchers.append((position, watcher))
        return True

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers = [each for each in self._watchers if each[1] is not watcher]

    def _accept(self, chunk: Sequence[T]) -> int:
        room = self.maxsize - len(self.items)
        if room < len(chunk):
            chunk = chunk[:room]
        self._append(chunk)
        return len(chunk)

    def _append(self, chunk: Sequence[T]) -> None:
        if not self.items:
            self.since = None
        self.items.extend(chunk)
        self._set_limits()

    def _remove(self, most: int | None) -> list[T]:
        items = self.items
        assert isinstance(items, list)
        if most is None or len(items) <= most:
            self.items = []
            return items
        taken = items[:most]
        del items[:most]
        return taken

    def _serve_line(self) -> None:
        if not self.is_closed:
            line = self.line
            line.reserve(self.maxsize - len(self.items) - line.reserved)
            while (head := line.head) is not None and head.granted:
                items = head.surrender()
                if not items:
                    break
                self._append(items)
                line.filled(head, len(items))
        self._set_limits()

    def _set_limits(self) -> None:
        if self.is_closed or len(self.line):
            limit = 0
        elif len(self.items) < self._due_size:
            limit = self._due_size - 1
        else:
            limit = self.maxsize - 1
        self.guarded_limit = limit
        self.limit = limit if self._guard is _UNGUARDED else 0

    def _settled_to(self) -> int:
        accounts = self.accounts
        return self._unsettled_from if accounts.in_flight else accounts.taken_out

    def _tell_watchers(self) -> None:
        settled = self._settled_to()
        told = [each for each in self._watchers if each[0] <= settled]
        self._watchers = [each for each in self._watchers if each[0] > settled]
        for _, watcher in told:
            watcher.reached()
