"""A bounded FIFO of waiting items: an `asyncio.Queue` with bulk take and a fair line.

Invariants:
* `len(items) + line.reserved <= maxsize`, at every moment.
* While somebody waits in line, room goes to the line: nobody else gets in.
* `len(items) < limit` means that one more item meets no edge (empty, due, full), no
  line, no close and no other thread: the hot path may append without asking.
* The first `uniform_prefix` items, all that wait or fewer, have one type.
* At most one take is outstanding: the next one comes when all its items are settled,
  so "settled up to a position" needs no record of single batches.
* Nothing gets in while `is_changing`. Only a `__del__` or a signal handler that runs in
  the middle of a change, on the same thread, sees that: the guard is reentrant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.partitions.accounts import Accounts, return_taken, watch
from batchqueue_async._engine.partitions.ages import Ages
from batchqueue_async._engine.partitions.item_types import WORTH_A_LOOK, have_type
from batchqueue_async._engine.partitions.pausing import Pause
from batchqueue_async._engine.partitions.producers_queue import ProducersQueue
from batchqueue_async._engine.partitions.unguarded import UNGUARDED
from batchqueue_async._engine.partitions.wait_for_room import place_singles, run_again
from batchqueue_async._engine.partitions.waiting_line import Waiter, WaitingLine
from batchqueue_async._policies.errors import with_accepted

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.linger_and_nap import Nap
    from batchqueue_async._engine.partitions.accounts import Watcher
    from batchqueue_async._engine.partitions.wait_for_room import Tally

T = TypeVar("T")


class Partition(ProducersQueue[T]):
    """One partition. Every change is a plain method: decide here, await elsewhere."""

    # Slots are next to each other in memory, which counts with many partitions.
    __slots__ = (
        "_maxsize",
        "accounts",
        "ages",
        "clock",
        "due_size",
        "filled_at",
        "full_at",
        "guard",
        "guarded_limit",
        "has_fast_path",
        "index",
        "is_changing",
        "is_closed",
        "is_open_to_threads",
        "items",
        "limit",
        "line",
        "owner",
        "pausing",
        "taken",
        "taken_from",
        "took_one_type",
        "uniform_prefix",
    )

    def __init__(self, index: int, buffer_size: int, due_size: int) -> None:
        # Not `super().__init__`: the deques and the event that its own `get`, `put` and
        # `join` wait with take more memory than all the rest, and nobody needs those.
        self._maxsize = buffer_size
        self._init(buffer_size)
        self.index = index
        self.line, self.accounts, self.ages = WaitingLine(), Accounts(), Ages()
        # The nap of its drain task; None before the start, and in a handoff.
        self.owner: Nap | None = None
        self.is_closed = self.is_changing = self.is_open_to_threads = False
        # Whether it is known to be open, unguarded and without clock, line and watcher:
        # of thousands of partitions, those have left the processor's caches.
        self.has_fast_path = False
        self.pausing: Pause | None = None
        # The loop's time, on any thread; and when an item last found it empty.
        self.clock: Callable[[], float] = monotonic
        self.filled_at = 0.0
        # How many of its first items are known to have one type; -1 if nobody asks.
        # Looking at a chunk that has just been made is cheaper than doing it later.
        self.uniform_prefix = -1
        # Of the last take: its first item's position, and whether all had one type, if
        # that is known. Noted with it: threads may displace items the moment after.
        self.taken_from, self.took_one_type = 0, False
        # The items of the last take, until they are in batches. While `taken_from` is
        # -1, the accounts have not counted the take yet.
        self.taken: list[T] | None = None
        # `guarded_limit` is the bound for other threads, which hold the guard.
        self.limit = self.guarded_limit = 0
        self.guard: AbstractContextManager[Any] = UNGUARDED
        self.due_size, self.full_at = min(due_size, buffer_size), buffer_size

    def _init(self, maxsize: int) -> None:
        self.items = []

    @property
    def accepted(self) -> int:
        """Items accepted so far: the position that the next one gets."""
        return self.accounts.taken_out + len(self.items)

    def is_due(self, coming: int = 0) -> bool:
        """Whether it is full (with `coming`), waited for, watched, or closed."""
        return (
            len(self.items) + coming >= self.due_size
            or self.line.unserved is not None
            or self.accounts.watchers is not None
            or self.is_closed
        )

    def notify(self, coming: int = 0, *, may_run: bool = False) -> None:
        """Tell the owner, on the loop, that items come: it must not sleep on."""
        # Told before an item is accepted: to wake the owner for nothing is harmless.
        if self.ages.clock is not None and (now := self.ages.clock()) is not None:
            self.oldest(now)
        if (owner := self.owner) is not None:
            owner.has_news = True
            if owner.listens:
                owner.notify(self, coming, may_run=may_run)

    def append(self, item: T) -> bool:
        """Accept an item if it meets no edge, as the hot paths do, under the guard."""
        is_in = False
        try:
            with self.guard:
                if is_in := len(self.items) < self.guarded_limit:
                    self.items.append(item)
        except BaseException as error:
            with_accepted(error, int(is_in))
            raise
        return is_in

    def accept_at_once(
        self,
        chunk: Sequence[T],
        tally: Tally | None = None,
        *,
        is_given: bool = False,
    ) -> bool:
        """Accept a chunk on the loop, if it meets no other edge than empty, due, full.

        As `offer`, for a fifth of the price. With `is_given` a list becomes its own.
        """
        if not self.has_fast_path or self.is_changing:
            return False
        self.is_changing = True
        try:
            items: Any = self.items
            more = len(chunk)
            count = len(items) + more
            if count > self._maxsize:
                return False
            self.filled_at = self.filled_at if items else self.clock()
            if is_given and not items and type(chunk) is list and type(items) is list:
                self.items = chunk
            else:
                # Not `extend`: after a call a signal handler may raise before `tally`.
                items += chunk
            if tally is not None:
                tally.count += more
        finally:
            self.is_changing = False
        limit = self.due_size if count < self.due_size else self._maxsize
        self.limit = self.guarded_limit = limit - 1
        if not self.has_fast_path:  # A signal handler may have closed it meanwhile.
            self._set_limits()  # type: ignore[unreachable]
        return True

    def offer(self, chunk: Sequence[T], tally: Tally | None = None) -> int:
        """Accept as many of the chunk's first items as there is room for.

        An error that is raised in the middle (Ctrl-C) says in `accepted` how many that
        were; so does the tally.
        """
        placed = 0
        # Freed last: a `__del__` of an item finds the change made, the guard free.
        displaced: list[T] = []
        try:
            with self.guard:
                if self.line.giving_way and not self.is_changing:
                    self.wait_in_line(self.line.giving_way)
                if self.is_closed or self.is_changing or self.line.head:
                    return 0
                count = len(self.items)
                if count >= self.full_at:
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
        finally:
            if tally is not None:
                tally.count += placed
        return placed

    def wait_in_line(self, waiter: Waiter, chunk: Sequence[T] = ()) -> None:
        """Let a producer wait for its turn; a subclass needs its chunk's sizes."""
        with self.guard:
            self.has_fast_path = False
            self.limit = self.guarded_limit = 0
            self.line.join(waiter)
            # There may be room: its chunk may have waited for another partition first.
            if len(self.items) + self.line.reserved < self._maxsize:
                self.serve_line()

    def offer_in_turn(self, waiter: Waiter, chunk: Sequence[T]) -> int:
        """Accept the items that the waiter has slots for; 0 before its turn."""
        with self.guard:
            count = 0 if self.is_closed else self.line.turn_of(waiter)
            if count:
                start = len(chunk) - waiter.wants
                self._place(waiter, chunk[start : start + count])
                if (head := self.line.head) is not None and head.hands_over:
                    self.serve_line()
                self._set_limits()
            return count

    def leave_line(self, waiter: Waiter) -> None:
        """A cancelled, late or refused waiter passes its slots on."""
        # A waiter that has got all has left the line already.
        if waiter.wants:
            with self.guard:
                self.line.leave(waiter)
                self.serve_line()

    def take(self, most: int | None) -> list[T]:
        """Remove up to `most` of the oldest items; they are in flight from now on."""
        with self.guard:
            if most is not None and len(self.items) > most:
                self.ages.sample(self)
            known, taken = self.uniform_prefix, self._remove(most)
            self.took_one_type = known >= (count := len(taken))
            self.taken_from = self.accounts.take(count)
            if self.ages.clock is not None and not self.items:
                self.ages.forget()
            if not self.items and (self.has_fast_path or self.line.giving_way):
                self.limit = self.guarded_limit = 0
            elif self.line.head:
                self.serve_line()
            else:
                self._set_limits()
        return taken

    def take_rest(self, left: list[T]) -> None:
        """Move every waiting item to `left`, unhandled: the deadline has come."""
        with self.guard:
            # First the items that an earlier call has removed, if it was cut short.
            return_taken(self, left)
            self._remove(None)
            return_taken(self, left)
        self.accounts.tell_watchers()

    def open(self) -> None:
        """Let producers in."""
        self._set_limits()

    def close(self) -> None:
        """Refuse new items and wake who waits; waiting items stay."""
        with self.guard:
            self.is_closed = True
            self._set_limits()
            if self.line.unaware:
                run_again(self)
            if self.line.head:
                self.line.wake_all()

    def abandon(self) -> None:
        """Empty it, in a forked child: its items are the parent's."""
        self.guard, self.is_open_to_threads, self.is_closed = UNGUARDED, False, True
        self._set_limits()
        self.items = type(self.items)()
        self.line, self.accounts = WaitingLine(), Accounts()

    def open_to_threads(self, guard: AbstractContextManager[Any]) -> None:
        """From now on other threads put, too, and every change holds `guard`."""
        with guard:
            self.guard, self.is_open_to_threads = guard, True
            self._set_limits()

    def oldest(self, now: float) -> float:
        """Return when the oldest waiting item came; called on the loop, with linger."""
        with self.guard:
            return self.ages.oldest(self.accounts.taken_out, now)

    def watch(self, watcher: Watcher) -> bool:
        """Tell `watcher` once all items that are in are settled; False if they are."""
        with self.guard:
            run_again(self)
            is_watched = watch(self, watcher)
            self.has_fast_path &= not is_watched
            return is_watched

    def _accept(self, chunk: Sequence[T], displaced: list[T]) -> int:
        """Accept what there is room for; `displaced` gets the items that make room."""
        room = self._maxsize - len(self.items)
        chunk = chunk[:room] if room < len(chunk) else chunk
        self._append(chunk)
        return len(chunk)

    def _append(self, chunk: Sequence[T]) -> None:
        if self.ages.clock is not None:
            self.ages.note(self.accepted, is_told=self.must_tell())
        if not self.items:
            self.filled_at = self.clock()
        more, uniform = len(chunk), self.uniform_prefix
        if more >= WORTH_A_LOOK and len(self.items) == uniform:
            first = self.items[0] if self.items else chunk[0]
            if type(first) is type(chunk[-1]) and have_type(chunk, type(first)):
                uniform += more
        # Last: if anything is raised before it, nothing was accepted.
        self.items.extend(chunk)
        self.uniform_prefix = uniform

    def _forget(self, going: int) -> None:
        """Lower `uniform_prefix` before items leave: too low is safe, too high not."""
        if self.uniform_prefix > 0:
            self.uniform_prefix = max(0, self.uniform_prefix - going)

    def _remove(self, most: int | None) -> list[T]:
        """Move items to `taken`, in one step that nothing cuts in two."""
        items = self.items
        assert isinstance(items, list)
        if most is None or len(items) <= most:
            if self.uniform_prefix > 0:  # noqa: PLR1730 - in each cycle
                self.uniform_prefix = 0
            # No call from here on.
            self.items, self.taken, self.taken_from = [], items, -1
            return items
        self._forget(most)
        taken = items[:most]
        del items[:most]
        self.taken, self.taken_from = taken, -1
        return taken

    def serve_line(self) -> None:
        """Let waiting producers in, as far as there is room for them."""
        if self.line.head and not self.is_closed:
            self.is_changing = True
            try:
                self._fill_from_line()
            finally:
                self.is_changing = False
        self._set_limits()

    def _fill_from_line(self) -> None:
        line, room = self.line, self._maxsize - len(self.items) - self.line.reserved
        if not line.reserved and self.ages.clock is None and self.entered is None:
            room -= place_singles(self, room)
        line.reserve(room)
        while (head := line.head) and head.granted and self._place(head):
            pass

    def _place(self, waiter: Waiter, chunk: Sequence[T] = ()) -> bool:
        """Accept a waiter's next items; struck in the middle, all of them or none."""
        count, wants = len(self.items), waiter.wants
        try:
            if not (chunk := chunk or waiter.hand_over()):
                return False
            self._append(chunk)
            self.line.filled(waiter, len(chunk))
        except BaseException:
            # Items that are in must not be placed again.
            if waiter.wants == wants:
                self.line.filled(waiter, len(self.items) - count)
            if waiter.wants:
                waiter.take_back()
            raise
        return True

    def _set_limits(self) -> None:
        line, is_empty_edge = self.line, self.is_open_to_threads and not self.items
        if is_empty_edge or line.head or line.giving_way or self.is_closed:
            self.has_fast_path = False
            self.limit = self.guarded_limit = 0
            return
        self.has_fast_path = not self.is_open_to_threads and (
            self.ages.clock is None and self.accounts.watchers is None
        )
        count, limit = len(self.items), 0
        if count:
            limit = (self.due_size if count < self.due_size else self._maxsize) - 1
        self.guarded_limit = limit
        self.limit = 0 if self.is_open_to_threads else limit
