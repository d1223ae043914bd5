"""How producers on the loop wait for room, one after the other.

The code that makes room, a take for instance, places the items of waiting producers, in
order. If each producer placed its own item, it would do so some turns of the loop
later. A producer that comes meanwhile must not overtake, and so would have to wait as
well, though there is room; then so would the next one, for ever.

A producer of one item may be cancelled after its item was placed and before its task
runs again: it is *unaware* of its item then, and cancelled it must leave nothing
behind. So the item can be taken back until its task runs, and the partition is paused
meanwhile.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Callable, Generator, Sequence
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.partitions.give_way import put_after_giving_way
from batchqueue_async._engine.partitions.pausing import Pause
from batchqueue_async._engine.partitions.waiting_line import LoopWaiter
from batchqueue_async._policies.errors import with_accepted

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition

T = TypeVar("T")


class Tally:
    """How many items of one bulk call were accepted so far, whatever ends it."""

    count = 0


@coroutine
def put_in_turn(
    partition: Partition[T],
    chunk: Sequence[T],
    placed: Tally,
    loop: asyncio.AbstractEventLoop,
) -> Generator[Any, None, None]:
    """Accept a chunk on the loop as room is made; less only if the partition closes.

    Cancelled, it leaves behind only the items that `placed` counts; a single one never.
    """
    waiter: LoopWaiter
    if partition.serves_on_loop:
        waiter = ServedWaiter(loop, chunk, partition)
    else:
        waiter = LoopWaiter(loop, len(chunk), partition)
    try:
        partition.wait_in_line(waiter, chunk)
        yield from _wait(partition, waiter, chunk)
    except BaseException:
        try:
            waiter.on_cancelled()
        finally:
            # Again: a call that was struck has either done nothing, or all.
            waiter.on_cancelled()
        raise
    finally:
        placed.count += waiter.accepted
        try:
            leave(partition, waiter)
        except BaseException:
            # Again if struck: a waiter that stays in line would hold up all behind it.
            leave(partition, waiter)
            raise


@coroutine
def put_one_in_turn(
    partition: Partition[T], chunk: Sequence[T], loop: asyncio.AbstractEventLoop
) -> Generator[Any, None, bool]:
    """Accept a single item, in a partition that `serves_on_loop`.

    As `put_in_turn`, for half of the price. Returns whether it was accepted.
    """
    line, owner = partition.line, partition.owner
    waiter = line.spare or ServedWaiter(loop, chunk, partition)
    waiter.chunk, line.spare = chunk, None
    try:
        if partition.has_fast_path and owner and owner.is_over_next_turn:
            line.giving_way, partition.has_fast_path = waiter, False
            yield
            if put_after_giving_way(partition, waiter):
                return True
        elif line.unserved and not (
            partition.is_open_to_threads or (owner and owner.listens)
        ):
            # There is no room, and the owner was told by the first producer in the
            # line.
            line.join(waiter)
        else:
            partition.wait_in_line(waiter, chunk)
            partition.notify()
        # It falls asleep before it looks: a close before the look is seen, a later one
        # wakes the producer.
        if not (waiter.fall_asleep().is_woken or partition.is_closed):
            yield waiter
            waiter.is_woken = False
            # If this is struck the item is withdrawn; and no call follows it.
            if waiter.acknowledge():
                # The rest of it is as it was made.
                waiter.wants, waiter.accepted, line.spare = 1, 0, waiter
                return True
        # It did not sleep, as its item was placed at once, or is to place that itself.
        if not waiter.acknowledge():
            yield from _wait(partition, waiter, chunk)
    except BaseException as error:
        try:
            _give_up(partition, waiter)
        finally:
            # Again: a call that was struck has either done nothing, or all.
            _give_up(partition, waiter)
        # It may have placed its item itself, and was struck after that.
        with_accepted(error, waiter.accepted)
        raise
    return waiter.accepted == 1


@coroutine
def _wait(
    partition: Partition[T], waiter: LoopWaiter, chunk: Sequence[T]
) -> Generator[Any, None, None]:
    """Wait in the line until all is placed, or the partition closes."""
    while not partition.is_closed:
        # The owner is told before items go in: see `Partition.notify`. The waiter may
        # have slots from the start, if there is room again.
        partition.notify(waiter.granted)
        if waiter.granted:
            partition.offer_in_turn(waiter, chunk)
        if waiter.wants:
            asleep = waiter.fall_asleep()
            if not waiter.is_woken:
                yield asleep
            waiter.is_woken = False
        # Whoever placed the item has told the owner. If this is struck the item is
        # withdrawn; and no call follows it.
        if waiter.acknowledge() or not waiter.wants:
            return
    leave(partition, waiter)


def _give_up(partition: Partition[Any], waiter: ServedWaiter) -> None:
    waiter.on_cancelled()
    leave(partition, waiter)


def leave(partition: Partition[Any], waiter: LoopWaiter) -> None:
    """Take a waiter out of the line that will put no more, and tell the owner."""
    if waiter.wants:
        partition.leave_line(waiter)
        partition.notify()


class ServedWaiter(LoopWaiter):
    """A producer on the loop whose items are placed as soon as it gets its slots."""

    __slots__ = ("chunk", "is_single")

    hands_over = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chunk: Sequence[Any],
        partition: Partition[Any],
    ) -> None:
        # As in `LoopWaiter`, in one go; `ahead` and `behind` are set by the line.
        self.chunk = chunk
        self.wants = wants = len(chunk)
        self.is_single = wants == 1
        self.accepted = self.granted = 0
        self.line = None
        self._loop = loop
        self._partition = partition
        self._asyncio_future_blocking = self.is_woken = False
        self._wakeup = self._context = self._outcome = None

    def hand_over(self) -> Sequence[Any]:
        chunk, partition = self.chunk, self._partition
        if partition.is_served_late or not self.is_on_loop():
            # From another thread, for instance, an item could come between a drain
            # task's look and its take.
            return ()
        if self.is_single:
            self._note_unaware(partition)
            return chunk
        first = len(chunk) - self.wants
        return chunk[first : first + self.granted]

    def _note_unaware(self, partition: Partition[Any]) -> None:
        """Note that its item, which comes next, may be taken back."""
        line, pausing = partition.line, partition.pausing or Pause()
        position = partition.accounts.taken_out + len(partition.items)
        if line.unaware is None:
            # No call in between, after which a signal handler might raise: the
            # partition is paused if, and only if, somebody is unaware.
            pausing.holders[line] = None
            partition.pausing = pausing
            line.unaware, line.withdrawn = {self: position}, []
        else:
            line.unaware[self] = position + len(line.withdrawn)

    def call_soon(self, callback: Callable[[Any], None], argument: object) -> None:
        """Have this called in the next turn of its loop."""
        self._loop.call_soon(callback, argument)

    def take_back(self) -> None:
        unaware = self._partition.line.unaware
        if unaware is not None and self in unaware:
            if len(unaware) > 1:
                del unaware[self]
            else:
                _all_are_aware(self._partition)

    def acknowledge(self) -> bool:
        unaware = self._partition.line.unaware
        if unaware is None or self not in unaware:
            return False
        self.line = self.ahead = self.behind = None
        self.wants, self.accepted = 0, 1
        self.chunk, self._context = (), None
        if len(unaware) > 1:
            del unaware[self]
        else:
            _all_are_aware(self._partition)
        return True

    def on_cancelled(self) -> None:
        withdraw(self, self._partition)


def place_singles(partition: Partition[Any], room: int) -> int:
    """Place items of producers on the loop at the line's head that bring one each.

    As `reserve` and `filled` do it for all, for a fraction of the price: one callback
    resumes them.

    Returns:
        How many were placed.
    """
    line = partition.line
    items: Any = partition.items
    # A `ServedWaiter`, as long as it is single.
    head: Any = line.head
    waiter = head
    if room <= 0 or partition.has_sizes or not head.is_single:
        return 0
    if line.unaware is not None or not head.is_on_loop():
        # Producers of an earlier round have not run yet; or this is another thread,
        # from which an item could come between a drain task's look and its take.
        return 0
    if not items:
        partition.filled_at = partition.clock()
    unaware: dict[ServedWaiter, int] = {}
    coming: list[Any] = []
    position = first = partition.accounts.taken_out + len(items)
    end = first + room
    while position < end and waiter is not None and waiter.is_single:
        unaware[waiter] = position
        coming += waiter.chunk
        position += 1
        waiter = waiter.behind
    pausing = partition.pausing or Pause()
    # First: a needless callback is harmless, an unaware producer that sleeps on is not.
    head.call_soon(_run_on, unaware)
    # No call from here on, after which a signal handler might raise: the partition is
    # paused if, and only if, somebody is unaware.
    items += coming
    pausing.holders[line] = None
    partition.pausing, line.unaware, line.withdrawn = pausing, unaware, []
    if waiter is not None:
        waiter.ahead = head.ahead
    line.head = line.unserved = waiter
    return position - first


def _run_on(unaware: dict[ServedWaiter, int]) -> None:
    """Resume the producers whose items were placed, in order: a loop's callback."""
    try:
        for waiter in tuple(unaware):
            waiter.run_now()
    except BaseException:
        # One of their tasks has raised, or a signal handler: the others still run.
        asyncio.get_running_loop().call_soon(_run_on, unaware)
        raise


def run_again(partition: Partition[Any]) -> None:
    """Resume unaware producers again: the callback for that may have been struck."""
    if unaware := partition.line.unaware:
        next(iter(unaware)).call_soon(_run_on, unaware)


def withdraw_all(partition: Partition[Any]) -> None:
    """Take back what unaware producers have placed: the deadline has come."""
    for waiter in list(partition.line.unaware or ()):
        withdraw(waiter, partition)


def withdraw(waiter: ServedWaiter, partition: Partition[Any]) -> None:
    """Take the item of an unaware producer out again."""
    with partition.guard:
        line, pausing = partition.line, partition.pausing
        unaware = line.unaware
        if unaware is not None and waiter in unaware:
            if is_last := len(unaware) == 1:
                _tell_of_the_last(partition)
            own, withdrawn = [unaware[waiter]], line.withdrawn
            at = bisect(withdrawn, own[0])
            index = (position := own[0] - at) - partition.accounts.taken_out
            prefix, entered = partition.uniform_prefix, partition.entered
            watchers = partition.accounts.without(position)
            # A `SizedPartition`, if what waits afterwards has a size.
            sized: Any = partition
            waits = sized.sizes_without(index) if partition.has_sizes else None
            # No call from here on: all of it is done, or nothing.
            del partition.items[index]
            if waits is not None:
                del sized.sizes[index]
                sized.waiting_size, sized.budget.waiting = waits
            partition.uniform_prefix = prefix - (index < prefix)
            partition.accounts.watchers = watchers
            if entered is not None:
                partition.entered = entered - 1
            withdrawn[at:at] = own
            del unaware[waiter]
            if is_last:
                line.unaware = None
            if pausing is not None and is_last:
                del pausing.holders[line]
                if not pausing.holders:
                    partition.pausing = None
            # The waiter keeps its claim to room until it leaves: leaving serves whoever
            # is behind it.
            waiter.wants, waiter.accepted = 1, 0
            waiter.line = waiter.ahead = waiter.behind = None
        partition.accounts.tell_watchers()


def _all_are_aware(partition: Partition[Any]) -> None:
    """End the partition's pause: no item will be taken back any more."""
    _tell_of_the_last(partition)
    pausing, line = partition.pausing, partition.line
    line.unaware = None
    if pausing is not None:
        del pausing.holders[line]
        if not pausing.holders:
            partition.pausing = None


def _tell_of_the_last(partition: Partition[Any]) -> None:
    """Tell the owner before the last unaware producer knows, or takes its item back.

    Not after that, where no call may be: if this is struck, the producer is unaware.
    """
    # The owner may have looked while the partition was paused, and sleep since.
    partition.notify()
    pausing = partition.pausing
    if pausing is not None and pausing.waiting and len(pausing.holders) == 1:
        pausing.tell()
