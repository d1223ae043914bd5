"""Wakes the loop for items from a thread, or from a signal handler or a `__del__`.

A signal handler or a `__del__` runs on the loop's own thread in the middle of anything,
also while the loop sleeps in its selector. So it accepts as a thread does, and drain
tasks are told in a callback, when no change is half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from batchqueue_async._policies.errors import with_accepted

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.told_once import ToldOncePartition
    from batchqueue_async._engine.partitions.wait_for_room import Tally

T = TypeVar("T")

# Nested calls that waking a loop takes at most, with some to spare; half of them are
# those of an instrumented loop. In debug mode asyncio walks the whole stack, too.
_STACK_TO_TELL = 12
_STACK_TO_TELL_IN_DEBUG_MODE = 24


class LoopWaker(Generic[T]):
    """Wakes one loop, once for all that comes before it looks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._news: list[Partition[T]] = []
        self._is_posted = False
        self._wake_loop: Callable[[], object] = self._call_soon
        # Nested calls that waking it takes; None if that depends on its debug mode.
        self._stack_to_tell: int | None = None

    def put_first(self, partition: Partition[T], item: T) -> bool:
        """Accept an item that finds its partition empty, if that is the only edge.

        As `put` does it, in few functions: nearly all items that come alone go this
        way, and in the pauses between them a processor forgets the code.
        """
        if not self._is_posted:
            self._need_stack()
        is_in = False
        try:
            with partition.guard:
                is_in = _accept_first(partition, item)
            if is_in:
                self.post(partition)
        except BaseException as error:
            # As in `put`.
            partition.guarded_limit = 0
            with_accepted(error, int(is_in))
            self.post(partition)
            raise
        return is_in

    def put(
        self, partition: Partition[T], run: Sequence[T], tally: Tally | None = None
    ) -> int:
        """Accept what there is room for, and tell the loop; returns how many."""
        count = len(run)
        if partition.is_told_once and partition.accept_at_once(run, tally):
            # No call in between.
            return count
        # The loop could look in between, so it is told after the acceptance. Telling it
        # takes more room on the stack: without that room nothing is accepted.
        if not self._is_posted:
            self._need_stack()
        placed: int | None = None
        try:
            placed = partition.offer(run)
            if tally is not None:
                tally.count += placed
            if placed and partition.must_post():
                self.post(partition)
        except BaseException as error:
            # Ctrl-C: items that were accepted before it must still be handled. If this
            # fails, too, the limits of 0 make the next producer tell the loop.
            partition.limit = partition.guarded_limit = 0
            if partition.is_told_once:
                told_once = cast("ToldOncePartition[T]", partition)
                told_once.is_known, told_once.open_slots = False, 0
            if placed is not None:
                with_accepted(error, placed)
            elif tally is not None:
                tally.count += getattr(error, "accepted", 0)
            self.post(partition)
            raise
        return placed

    def post(self, partition: Partition[T]) -> None:
        """Tell the loop; it is woken once, however much comes before it looks."""
        calls = False
        try:
            # In this order: once the loop has taken note, whoever comes wakes it again.
            self._news.append(partition)
            if not self._is_posted:
                calls = self._is_posted = True
                self._wake_loop()
        except BaseException:
            # After a Ctrl-C in between, the next one to post wakes the loop.
            if calls:
                self._is_posted = False
            raise

    def _call_soon(self) -> None:
        # Not `contextlib.suppress`, which is three calls more for a lone item.
        try:  # noqa: SIM105
            self.loop.call_soon_threadsafe(self._deliver_news)
        except RuntimeError:
            # The loop closes in this very moment: whoever waits will find that out.
            pass

    def _need_stack(self) -> None:
        """Raise `RecursionError` now rather than when the loop is told."""
        frames = self._stack_to_tell
        if frames is None:
            is_debug = self.loop.get_debug()
            frames = _STACK_TO_TELL_IN_DEBUG_MODE if is_debug else _STACK_TO_TELL
        _need_frames(frames)

    def _deliver_news(self) -> None:
        try:
            # First: who posts from here on wakes the loop again, and what was posted
            # before is in the copy.
            self._is_posted = False
            news = self._news.copy()
            told = dict.fromkeys(news)
            for partition in told:
                partition.notify(may_run=len(told) == 1)
            del self._news[: len(news)]
        except BaseException:
            # A signal handler has raised: owners that were not told are told in the
            # next turn.
            self.loop.call_soon(self._deliver_news)
            raise


def _need_frames(frames: int) -> None:
    """Raise `RecursionError` now rather than within so many nested calls."""
    if frames:
        _need_frames(frames - 1)


def _accept_first(partition: Partition[T], item: T) -> bool:
    """Accept a thread's item, as `offer` does; the caller holds the guard."""
    now = partition.clock()
    # No call from here on: a signal handler could put an item of its own in.
    if partition.items or partition.is_closed or partition.is_changing:
        return False
    if partition.is_told_once or partition.entered is not None:
        return False
    if partition.line.head or partition.line.giving_way:
        return False
    if partition.ages.clock is not None:
        return False
    most, due = partition._maxsize, partition.due_size  # noqa: SLF001 - `maxsize` calls
    items: Any = partition.items
    items += (item,)
    partition.filled_at = now
    partition.guarded_limit = (due if due > 1 else most) - 1
    return True
