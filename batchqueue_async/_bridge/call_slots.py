"""How many calls of a handler may run at once, in all queues that it is a handler of.

Who gets no slot waits at the handler's lock, before its call begins: no timeout runs
yet, and the graph of waits knows for whom it waits.

A closed loop gives nothing back by itself. So what its calls hold is taken back, of
those that are still on a thread when they have left that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING
from weakref import WeakSet

from batchqueue_async._engine.handlers.handler_lock_and_call import (
    HandlerCall,
    HandlerLock,
    current_call,
)
from batchqueue_async._engine.handlers.wait_for_graph import Node, Wait, on

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector


class CallSlots:
    """Slots that the locks of one handler share: one lock for each of its queues.

    They go round in order of asking: a lock that got one is behind the others again.
    The locks may be on the loops of several threads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        # Reentrant: whoever holds it may collect the garbage of a closed loop, in which
        # calls give their slots back.
        self._guard = threading.RLock()
        # Locks for which somebody waits, in order of asking, and their loops.
        self._line: dict[SlottedLock, asyncio.AbstractEventLoop] = {}
        self._locks: WeakSet[SlottedLock] = WeakSet()
        # Locks that have slots, kept alive until they have given them back.
        self._holding: set[SlottedLock] = set()

    def new_lock(self) -> SlottedLock:
        lock = SlottedLock(self)
        with self._guard:
            self._locks.add(lock)
        return lock

    def take(self, lock: SlottedLock, *, joins_line: bool) -> bool:
        """Take a slot unless those that there are belong to who came before.

        Args:
            lock: For whom.
            joins_line: Whether to be told, by `grant_next`, once there may be one.
        """
        with self._guard:
            if lock.loop is None:
                lock.loop = asyncio._get_running_loop()  # noqa: SLF001
            elif lock.is_lost:
                # A call that is thrown away with its closed loop tries to admit the
                # next.
                return False
            ahead = self._ahead_of(lock)
            if self._free <= ahead:
                self._take_from_closed_loops()
            if self._free > ahead:
                self._change(lock, 1)
                self._line.pop(lock, None)
                return True
            if joins_line:
                self._line.setdefault(lock, asyncio.get_running_loop())
            return False

    def leave_line(self, lock: SlottedLock) -> None:
        """Nobody waits for that lock any more."""
        with self._guard:
            was_in_line = self._line.pop(lock, None) is not None
        if was_in_line:
            self.tell()

    def give_back(self, lock: SlottedLock) -> None:
        with self._guard:
            # Otherwise the loop is closed, and the slot was taken back, or will be.
            if lock.held > (lock.on_threads if lock.is_lost else 0):
                self._change(lock, -1)
        self.tell()

    def locks_beside(self, lock: SlottedLock) -> list[SlottedLock]:
        """Return the locks on the same loop, itself among them."""
        with self._guard:
            return [each for each in self._locks if each.loop is lock.loop]

    def take_back_excess(self, lock: SlottedLock) -> None:
        """Take back what is for no call, as a signal handler's error may leave it."""
        with self._guard:
            excess = lock.held - lock.inside - lock.overdrawn
            if excess <= 0 or lock.is_lost:
                return
            self._change(lock, -excess)
        self.tell()

    def overdraw(self, lock: SlottedLock) -> None:
        """Take one more, though there is none: a call outlives the one that made it."""
        with self._guard:
            lock.overdrawn += 1
            self._change(lock, 1)

    def repay(self, lock: SlottedLock) -> None:
        """Give back what was overdrawn."""
        with self._guard:
            lock.overdrawn -= 1
        self.give_back(lock)

    def enter_thread(self, lock: SlottedLock) -> None:
        """A call is on a thread from now on, whatever becomes of its loop."""
        with self._guard:
            lock.on_threads += 1

    def leave_thread(self, lock: SlottedLock) -> None:
        with self._guard:
            lock.on_threads -= 1
            if not lock.is_lost:
                return
            self._take_from_closed_loops()
        self.tell()

    def lock_held_here(self) -> SlottedLock | None:
        """Return the lock by which the caller, part of a call, has got a slot."""
        call = current_call()
        lock = None if call is None else call.lock
        if isinstance(lock, SlottedLock) and lock.slots is self:
            return lock
        return None

    def holders(self) -> list[HandlerCall]:
        with self._guard:
            locks = list(self._locks)
        return [
            call
            for lock in locks
            if lock.detector is not None
            for call in list(lock.detector.calls.inside)
            if call.lock is lock
        ]

    def _take_from_closed_loops(self) -> None:
        for lock in [each for each in self._holding if each.is_lost]:
            self._change(lock, min(0, lock.on_threads - lock.held))

    def _change(self, lock: SlottedLock, by: int) -> None:
        lock.held += by
        self._free -= by
        if lock.held:
            self._holding.add(lock)
        else:
            self._holding.discard(lock)

    def _ahead_of(self, lock: SlottedLock) -> int:
        ahead = 0
        for each, loop in self._line.items():
            if each is lock:
                break
            # Those on a loop that has stopped don't count: it may never go on.
            ahead += loop.is_running()
        return ahead

    def loop_may_have_ended(self) -> None:
        """What a queue's loop has taken may have to be taken back."""
        with self._guard:
            self._take_from_closed_loops()
        self.tell()

    def tell(self) -> None:
        """Let those in line look: there may be a slot."""
        with self._guard:
            line = list(self._line.items())
        for lock, loop in line:
            if not on(loop, lock.grant_next):
                with self._guard:
                    self._line.pop(lock, None)


class SlottedLock(HandlerLock):
    """A handler's lock in one queue; whoever is inside has one of its slots."""

    __slots__ = (
        "__weakref__",
        "detector",
        "held",
        "loop",
        "on_threads",
        "overdrawn",
        "slots",
    )

    def __init__(self, slots: CallSlots) -> None:
        super().__init__()
        self.slots = slots
        # The queue's; None for a call that no queue makes.
        self.detector: DeadlockDetector | None = None
        # How many slots it has, how many of them for calls that outlive theirs, and how
        # many of its calls are on threads; and its loop. They change under the guard of
        # `slots`.
        self.held = self.overdrawn = self.on_threads = 0
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_lost(self) -> bool:
        return self.loop is not None and self.loop.is_closed()

    def belongs_to(self, detector: DeadlockDetector) -> None:
        self.detector = detector

    def try_acquire(self, mode: Hashable) -> bool:
        if self._waiting or not self._has_room(mode):
            return False
        if not self.slots.take(self, joins_line=False):
            return False
        self._go_in(mode)
        return True

    @property
    def inside(self) -> int:
        """How many calls are inside, as its own loop knows."""
        return sum((self._by_mode or {}).values()) + (self._sole is not None)

    def bring_on(self) -> None:
        # What was struck may have been letting another queue's call in.
        for each in self.slots.locks_beside(self):
            self.slots.take_back_excess(each)
            each.grant_next()

    def leave(self, mode: Hashable) -> object:
        super().leave(mode)
        return True

    def admit_next(self) -> None:
        super().admit_next()
        self.slots.give_back(self)

    def keeps_out(self, mode: Hashable) -> bool:
        return super().keeps_out(mode) or len(self.stuck) >= self.slots.most

    def outer_waits(self) -> Iterable[Wait]:
        return (SlotWait(self.slots),)

    def grant_next(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            mode, admitted = self._waiting[0]
            if admitted.cancelled():
                # Its task, when it runs, takes it out of the line.
                return
            if not self.slots.take(self, joins_line=True):
                return
            behind = self._waiting[1:]
            self._go_in(mode)
            # No call in between: it is in the line, or inside.
            self._waiting = behind
            admitted.set_result(None)
        self.slots.leave_line(self)


class SlotWait(Wait):
    """Who is first at a lock needs one of the slots: until any of the calls ends."""

    __slots__ = ("_slots",)

    needs_one = True
    is_refusable = False

    def __init__(self, slots: CallSlots) -> None:
        self._slots = slots

    def targets(self) -> Collection[Node]:
        holders = self._slots.holders()
        # A slot that is free, or whose call isn't known, may be had at any moment.
        if len(holders) < self._slots.most:
            return ()
        return holders

    def _describe(self) -> str:
        return "none of the handler's calls ends"

    def _wake(self) -> None:
        """Never refused: one of the calls is."""
