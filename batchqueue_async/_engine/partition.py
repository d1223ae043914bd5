"""A bounded FIFO of waiting items: an `asyncio.Queue` with bulk take and a fair line.

Invariants:
* `len(items) + line.reserved <= maxsize`, at every moment.
* While somebody waits in line, room goes to the line: nobody else gets in.
* At most one take is outstanding: the next one comes when all its items are settled,
  so "settled up to a position" needs no record of single batches.
* Nothing gets in while `is_changing`. Only a `__del__` or a signal handler that runs in
  the middle of a change, on the same thread, sees that: the guard is reentrant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from batchqueue_async._engine.chunks import Tally
from batchqueue_async._engine.one_type import WORTH_A_LOOK, have_type
from batchqueue_async._engine.partition_state import PartitionState
from batchqueue_async._engine.waiting_line import Waiter
from batchqueue_async._policies.errors import with_accepted

T = TypeVar("T")


class Partition(PartitionState[T]):
    """One partition. Every change is a plain method: decide here, await elsewhere."""

    __slots__ = ()

    def append(self, item: T) -> bool:
        """Accept an item if it meets no edge, as the hot paths do, under the guard."""
        with self._guard:
            if len(self.items) < self.guarded_limit:
                self.items.append(item)
                return True
        return False

    def begin(
        self,
        chunk: Sequence[T],
        placed: Tally | None = None,
        *,
        is_given: bool = False,
    ) -> bool:
        """Accept a chunk on the loop, if it is empty and meets no other edge.

        As `offer` does it, for a fifth of the price. A list that is given is the
        partition's own from then on: that spares going through the items.
        """
        count = len(chunk)
        if not self.is_plain or self.is_changing or count > self._maxsize:
            return False
        self.is_changing = True
        try:
            if self.items:
                return False
            if is_given and type(chunk) is list and type(self.items) is list:
                self.items = chunk
            else:
                items: Any = self.items
                # No call, after which a signal handler might raise before it counts.
                items += chunk
            if placed is not None:
                placed.count += count
        finally:
            self.is_changing = False
        # A signal handler that ran since may have closed it.
        if self.is_plain:
            limit = self.due_size if count < self.due_size else self._maxsize
            self.limit = self.guarded_limit = limit - 1
        return True

    def offer(self, chunk: Sequence[T]) -> int:
        """Accept as many of the chunk's first items as there is room for.

        Whatever is raised in the middle (Ctrl-C) has in `accepted` how many that were.
        """
        placed = 0
        # Let go of at the end: a `__del__` of theirs finds the change made, and the
        # guard free.
        displaced: list[T] = []
        try:
            with self._guard:
                if self.is_closed or self.is_changing or self.line.head:
                    return 0
                count = len(self.items)
                if count >= self._full_at:
                    return 0
                before = self.accounts.taken_out + count
                self.is_changing = True
                self.limit = self.guarded_limit = 0
                try:
                    placed = self._accept(chunk, displaced)
                except BaseException:
                    placed = self.accounts.taken_out + len(self.items) - before
                    raise
                finally:
                    self.is_changing = False
                    self._set_limits()
        except BaseException as error:
            with_accepted(error, placed)
            raise
        return placed

    def wait_in_line(self, waiter: Waiter) -> None:
        with self._guard:
            # There may be room: its chunk may have waited for another partition first.
            self.is_plain = False
            self.limit = self.guarded_limit = 0
            self.line.join(waiter)
            self._serve_line()

    def offer_in_turn(self, waiter: Waiter, chunk: Sequence[T], start: int) -> int:
        """Accept what the waiter holds slots for; 0 before its turn."""
        with self._guard:
            count = 0 if self.is_closed else self.line.turn_of(waiter)
            if count:
                is_whole = count == len(chunk)
                self._append(chunk if is_whole else chunk[start : start + count])
                self.line.filled(waiter, count)
                self._serve_line()
            return count

    def leave_line(self, waiter: Waiter) -> None:
        """A cancelled, late or refused waiter passes its slots on."""
        if not waiter.wants:
            # It has got all, and so has left already.
            return
        with self._guard:
            self.line.leave(waiter)
            self._serve_line()

    def take(self, most: int | None) -> list[T]:
        """Remove up to `most` of the oldest items; they are in flight from now on."""
        with self._guard:
            self.taken_from = self.accounts.taken_out
            known = self.alike
            taken = self._remove(most)
            self.took_one_type = known >= len(taken)
            self.accounts.take(len(taken))
            if self.is_plain and not self.items:
                self.limit = self.guarded_limit = 0
            else:
                self._serve_line()
        return taken

    def withdraw(self) -> list[T]:
        """Take every waiting item out, unhandled: the deadline has come."""
        with self._guard:
            left = self._remove(None)
            self.accounts.return_waiting(len(left))
        self.accounts.tell_watchers()
        return left

    def _accept(self, chunk: Sequence[T], displaced: list[T]) -> int:
        """Take in what there is room for; `displaced` gets what has to go for it."""
        room = self._maxsize - len(self.items)
        if room < len(chunk):
            chunk = chunk[:room]
        self._append(chunk)
        return len(chunk)

    def _append(self, chunk: Sequence[T]) -> None:
        if self.ages.clock is not None:
            self.ages.note(self.accepted)
        more, alike = len(chunk), self.alike
        if more >= WORTH_A_LOOK and len(self.items) == alike:
            first = self.items[0] if self.items else chunk[0]
            if type(first) is type(chunk[-1]) and have_type(chunk, type(first)):
                alike += more
        # Last: whatever is raised before it, nothing was accepted.
        self.items.extend(chunk)
        self.alike = alike

    def _forget(self, going: int) -> None:
        """So many items are about to leave; known too few is better than too many."""
        if self.alike > 0:
            self.alike = max(0, self.alike - going)

    def _remove(self, most: int | None) -> list[T]:
        items = self.items
        assert isinstance(items, list)
        if most is None or len(items) <= most:
            self._forget(len(items))
            self.items = []
            return items
        self._forget(most)
        taken = items[:most]
        del items[:most]
        return taken

    def _serve_line(self) -> None:
        if self.line.head and not self.is_closed:
            self.is_changing = True
            try:
                self._fill_from_line()
            finally:
                self.is_changing = False
        self._set_limits()

    def _fill_from_line(self) -> None:
        line = self.line
        line.reserve(self.maxsize - len(self.items) - line.reserved)
        while (head := line.head) is not None and head.granted:
            count = len(self.items)
            items = head.surrender()
            if not items:
                break
            try:
                self._append(items)
            except BaseException:
                # Ctrl-C, on the waiter's own thread.
                head.take_back(len(items) + count - len(self.items))
                raise
            line.filled(head, len(items))
