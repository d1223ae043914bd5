"""The producers that wait for room in one partition, first come, first served.

Invariants:
* The waiters that hold reserved slots are a prefix of the line, and only the last
  of them may hold fewer than it wants: nobody overtakes.
* A reserved slot belongs to its waiter until it is filled, or passed on when the
  waiter leaves (cancelled, timed out, closed).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Waiter(Protocol):
    """One producer in the line, on the loop or on another thread."""

    wants: int
    """Slots that it has not filled yet."""
    granted: int
    """Of these, the ones that are reserved for it."""
    drain_task: int | None
    """The drain task whose handler waits; None for producers outside of handlers."""

    def wake(self) -> None:
        """Let the producer look again; harmless when it is awake already."""

    def surrender(self) -> Sequence[Any]:
        """Return items for the granted slots, or nothing to fill them in person.

        A producer on the loop fills its slots itself, so that a cancelled one leaves
        nothing behind. One on a thread cannot be cancelled, and would keep everybody
        behind it waiting until the system lets it run.
        """

    def take_back(self, count: int) -> None:
        """So many of what it has surrendered last were not accepted."""


class LoopWaiter:
    """A producer that waits on the event loop."""

    __slots__ = (
        "_is_called",
        "_is_shared",
        "_loop",
        "_signal",
        "drain_task",
        "granted",
        "wants",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wants: int,
        drain_task: int | None,
        is_shared: Callable[[], bool],
    ) -> None:
        # Whether other threads may wake it. Asking which loop runs here is a system
        # call on Python 3.11, so that is done only if there may be more than one.
        self._is_shared = is_shared
        self.wants = wants
        self.drain_task = drain_task
        self.granted = 0
        self._loop = loop
        self._signal: asyncio.Future[None] | None = None
        self._is_called = False

    def wake(self) -> None:
        # A producer on a thread that leaves the line passes its slots on to this one.
        if not self._is_shared() or asyncio._get_running_loop() is self._loop:  # noqa: SLF001
            self._set_signal()
        else:
            self._loop.call_soon_threadsafe(self._set_signal)

    def _set_signal(self) -> None:
        self._is_called = True
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    def surrender(self) -> Sequence[Any]:
        return ()

    def take_back(self, count: int) -> None:
        """Nothing: it surrenders nothing."""

    async def wait(self) -> None:
        """Wait for the next `wake`; one that came before counts."""
        if not self._is_called:
            self._signal = self._loop.create_future()
            await self._signal
        self._is_called = False


# Stands for the line where nobody ever waited: an empty deque takes 600 bytes.
_NOBODY: deque[Waiter] = deque()


class WaitingLine:
    """FIFO of waiters with the slots that are reserved for its head."""

    __slots__ = ("reserved", "waiters", "wanted")

    def __init__(self) -> None:
        self.waiters = _NOBODY
        self.reserved = 0
        self.wanted = 0

    def __len__(self) -> int:
        return len(self.waiters)

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for a slot that only a take can free."""
        return self.wanted > self.reserved

    @property
    def head(self) -> Waiter | None:
        return self.waiters[0] if self.waiters else None

    def has_handler_of(self, drain_task: int) -> bool:
        """Whether a handler of this drain task is one of those who wait."""
        return any(waiter.drain_task == drain_task for waiter in self.waiters)

    def join(self, waiter: Waiter) -> None:
        # Counted first: a Ctrl-C comes after the call, and not in between.
        self.wanted += waiter.wants
        if self.waiters is _NOBODY:
            self.waiters = deque()
        self.waiters.append(waiter)

    def reserve(self, free: int) -> None:
        """Give `free` slots that nobody holds to those who wait, in order."""
        if free <= 0:
            return
        for waiter in self.waiters:
            share = min(waiter.wants - waiter.granted, free)
            if share:
                waiter.granted += share
                self.reserved += share
                free -= share
                waiter.wake()
                if not free:
                    return

    def turn_of(self, waiter: Waiter) -> int:
        """How many slots the waiter may fill now; 0 while another is before it."""
        return waiter.granted if self.waiters[0] is waiter else 0

    def filled(self, waiter: Waiter, count: int) -> None:
        """The waiter at the head has filled `count` of its slots."""
        waiter.granted -= count
        waiter.wants -= count
        self.reserved -= count
        self.wanted -= count
        if not waiter.wants:
            self.waiters.popleft()
            self._wake_head()

    def leave(self, waiter: Waiter) -> None:
        """Take the waiter out if it is in; its slots are free for `reserve` again."""
        if not waiter.wants or waiter not in self.waiters:
            return
        # Counted first, as in `join`.
        self.reserved -= waiter.granted
        self.wanted -= waiter.wants
        waiter.granted = 0
        self.waiters.remove(waiter)
        self._wake_head()

    def wake_all(self) -> None:
        for waiter in self.waiters:
            waiter.wake()

    def _wake_head(self) -> None:
        # A waiter may have woken before its turn and gone back to sleep.
        if self.waiters and self.waiters[0].granted:
            self.waiters[0].wake()
