"""The producers that wait for room in one partition, first come, first served.

Invariants:
* The waiters that hold reserved slots are a prefix of the line, and only the last
  of them may hold fewer than it wants: nobody overtakes.
* A reserved slot belongs to its waiter until it is filled, or passed on when the
  waiter leaves (cancelled, timed out, closed).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import _get_running_loop
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from batchqueue_async._loop_time import Asleep

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.wait_for_room import ServedWaiter


class Waiter(ABC):
    """One producer in the line, on the loop or on another thread.

    The line is linked through its waiters: one that leaves from its middle is taken out
    in one step, and a partition where nobody waits needs no container.
    """

    __slots__ = (
        "accepted",
        "ahead",
        "behind",
        "granted",
        "is_woken",
        "line",
        "wants",
    )

    hands_over = False
    """Whether `hand_over` returns items."""
    is_single = False
    """Whether it waits on the loop with a single item, which may be taken back."""

    def __init__(self, wants: int) -> None:
        # Slots that it has not filled yet, and those of them that are reserved for it.
        self.wants = wants
        self.granted = 0
        # How many of its items are in.
        self.accepted = 0
        # Whether it was woken and has not looked yet, so that it is sure to look.
        self.is_woken = False
        # Its line, and its neighbours there; only the line changes these. Ahead of the
        # head is the last waiter, so that a line needs to know its head only.
        self.line: WaitingLine | None = None
        self.ahead: Waiter | None = None
        self.behind: Waiter | None = None

    @abstractmethod
    def wake(self) -> None:
        """Let the producer look again; harmless when it is awake already."""

    def hand_over(self) -> Sequence[Any]:
        """Return items for the granted slots; nothing if it fills them itself.

        A producer that can be cancelled, and can't take an item back, fills its slots
        itself. One on a thread can't be cancelled, and would keep all behind it waiting
        until the system runs its thread. A `ServedWaiter` can take its item back.
        """
        return ()

    def take_back(self) -> None:  # noqa: B027 - most note nothing
        """Note that what it handed over last was not accepted."""


class LoopWaiter(Asleep, Waiter):
    """A producer that waits on the event loop, and fills its slots itself.

    It is awaited itself, once for each time that it is woken.
    """

    __slots__ = (*Asleep.SLOTS, "_partition")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wants: int, partition: Partition[Any]
    ) -> None:
        # All in one go, without calls of `__init__`, since each wait makes one.
        self.wants = wants
        self.accepted = self.granted = 0
        self.line = self.ahead = self.behind = None
        self._loop = loop
        self._partition = partition
        self._asyncio_future_blocking = self.is_woken = False
        self._wakeup = self._context = self._outcome = None

    def wake(self) -> None:
        # Called on a thread if a producer there leaves and passes its slots on.
        if self._partition.is_open_to_threads and not self.is_on_loop():
            self._loop.call_soon_threadsafe(self._end_sleep)
        elif not self.is_woken:
            if self._wakeup is not None or self._asyncio_future_blocking:
                self._loop.call_soon(self._resume, context=self._context)
            self.is_woken = True

    def acknowledge(self) -> bool:
        """Return whether its single item was placed; it knows from now on."""
        return False

    def on_cancelled(self) -> None:
        """Take back the item that was placed for it, since its producer raises."""

    def is_on_loop(self) -> bool:
        """Whether this is called on its loop."""
        # Asking which loop runs here is a system call on Python 3.11.
        return (
            not self._partition.is_open_to_threads or _get_running_loop() is self._loop
        )

    def _end_sleep(self) -> None:
        # A callback of the loop: its context is not the task's, which `run_now` enters.
        if not self.is_woken:
            self.is_woken = True
            self.run_now()


class WaitingLine:
    """FIFO of waiters with the slots that are reserved for its head.

    Ctrl-C may strike a thread after each call. So each change of the links is made in
    one go, with no call in between, and slots are counted before it.
    """

    __slots__ = (
        "giving_way",
        "head",
        "reserved",
        "spare",
        "unaware",
        "unserved",
        "withdrawn",
    )

    def __init__(self) -> None:
        self.head: Waiter | None = None
        # The first one that lacks slots, which only a take can free: all before it have
        # what they want.
        self.unserved: Waiter | None = None
        self.reserved = 0
        # Producers that have not run since their item was placed, with its position
        # then; and, set with it, such positions whose items were taken back since, in
        # order. To correct all others then is quadratic where all are cancelled.
        self.unaware: dict[ServedWaiter, int] | None = None
        self.withdrawn: list[int]
        # A producer that is ahead of all and will be back in the loop's next turn; the
        # line is empty until somebody joins it, who puts that one first.
        self.giving_way: ServedWaiter | None = None
        # One whose item is in, and who knows: the next producer gets it.
        self.spare: ServedWaiter | None = None

    def __iter__(self) -> Iterator[Waiter]:
        waiter = self.head
        while waiter is not None:
            behind = waiter.behind
            yield waiter
            waiter = behind

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def may_finish(self, waiter: Waiter) -> bool:
        """Whether it is the waiter's turn, with slots for all that it wants."""
        return waiter.granted >= waiter.wants and self.head is waiter

    def join(self, waiter: Waiter) -> None:
        if (first := self.giving_way) is not None:
            self.giving_way = None
            if first is not waiter:
                self.join(first)
        head = self.head
        waiter.line, waiter.behind = self, None
        if head is None or head.ahead is None:
            waiter.ahead = self.head = waiter
        else:
            waiter.ahead = head.ahead
            head.ahead.behind = waiter
            head.ahead = waiter
        if self.unserved is None:
            self.unserved = waiter

    def reserve(self, free: int) -> None:
        """Give `free` slots that nobody holds to the waiters, in order."""
        while free > 0 and (waiter := self.unserved) is not None:
            share = min(waiter.wants - waiter.granted, free)
            waiter.granted += share
            self.reserved += share
            free -= share
            if waiter.granted == waiter.wants:
                self.unserved = waiter.behind
            try:
                waiter.wake()
            except BaseException:
                # If `wake` was struck, nobody else would call it again.
                waiter.wake()
                raise

    def turn_of(self, waiter: Waiter) -> int:
        """How many slots the waiter may fill now; 0 while another is before it."""
        return waiter.granted if self.head is waiter else 0

    def filled(self, waiter: Waiter, count: int) -> None:
        """The waiter at the head has filled `count` of its slots."""
        is_done, behind = count == waiter.wants, waiter.behind
        # The next one may have woken before its turn and gone back to sleep. Wake it
        # first: if a signal handler raises in between, nobody else would.
        if is_done and behind is not None and behind.granted and not behind.is_woken:
            behind.wake()
        # No call from here on.
        waiter.accepted += count
        waiter.granted -= count
        waiter.wants -= count
        self.reserved -= count
        if is_done:
            self.head = behind
            if behind is not None:
                behind.ahead = waiter.ahead
            waiter.line = waiter.ahead = waiter.behind = None

    def leave(self, waiter: Waiter) -> None:
        """Take the waiter out if it is in; its slots are free for `reserve` again."""
        if waiter is self.giving_way:
            self.giving_way = None
        if waiter.line is not self:
            return
        head, ahead, behind = self.head, waiter.ahead, waiter.behind
        if waiter is head and behind and behind.granted and not behind.is_woken:
            # As in `filled`.
            behind.wake()
        # No call from here on.
        self.reserved -= waiter.granted
        waiter.granted = 0
        if waiter is head:
            self.head = behind
        elif ahead is not None:
            ahead.behind = behind
        # The one whose `ahead` is the waiter: behind the last one that is the head.
        follower = head if behind is None else behind
        if follower is not None:
            follower.ahead = ahead
        if self.unserved is waiter:
            self.unserved = behind
        waiter.line = waiter.ahead = waiter.behind = None

    def wake_all(self) -> None:
        for waiter in self:
            waiter.wake()
