"""One queue's part of the wait-for graph: its waits, and its questions to the graph.

Its handlers may wait for room, for a flush, for the end of queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from batchqueue_async._engine.handlers.handler_lock_and_call import (
    EXCLUSIVE,
    HandlerCall,
    HandlerLock,
    current_call,
    excludes,
)
from batchqueue_async._engine.handlers.slow_calls import RunningCalls
from batchqueue_async._engine.handlers.wait_for_graph import (
    DrainTaskNode,
    Node,
    Wait,
    find,
    is_stuck,
    refuse_cycles,
)

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.shared_drain_tasks import Permit
    from batchqueue_async._engine.partitions.byte_budget import ByteBudget
    from batchqueue_async._engine.partitions.ownership import Ownership
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.sized_partition import SizedPartition
    from batchqueue_async._engine.partitions.waiting_line import Waiter


class RoomWait(Wait):
    """A producer in a handler waits for room in a partition."""

    __slots__ = ("_detector", "_partition", "_waiter")

    def __init__(
        self,
        call: HandlerCall,
        detector: DeadlockDetector,
        partition: Partition[Any],
        waiter: Waiter,
    ) -> None:
        super().__init__(call)
        self._detector = detector
        self._partition = partition
        self._waiter = waiter

    def targets(self) -> Collection[Node]:
        if not self.needs(self._partition):
            return ()
        return (DrainTaskNode(self._detector, self._owner),)

    def needs(self, partition: Partition[Any]) -> bool:
        return self._partition.is_in(partition) and self._lacks()

    def _lacks(self) -> bool:
        # A waiter that was served, but has not run yet, blocks nobody: the chain goes
        # on.
        return (
            self._waiter.wants > self._waiter.granted
            and not self._partition.is_closed
            and self.refusal is None
        )

    def end(self) -> None:
        key = self.call, self._partition
        if self.call.detector.room_waits.get(key) is self:
            self.call.detector.room_waits.pop(key, None)
        super().end()

    def _closes_cycle(self) -> bool:
        if self.call.detector is self._detector and self.call.drain_task == self._owner:
            # `on_flush` counts, too: the owner's next batch will wait for its lock.
            return bool(self.targets())
        key = self.call, self._partition
        known = self.call.detector.room_waits.get(key)
        # Having looked once is enough: whatever closes a cycle later looks by itself.
        if known is not None and known.needs(self._partition):
            # Of thousands of tasks of one handler that wait here only one has to look.
            return False
        self.call.detector.room_waits[key] = self
        return super()._closes_cycle()

    @property
    def _owner(self) -> int:
        return self._detector.ownership.last_owner(self._partition.index)

    def _describe(self) -> str:
        return (
            f"nobody makes room in partition {self._partition.index} of "
            f"{self._detector.name!r}"
        )

    def _wake(self) -> None:
        self._waiter.wake()


class CallWait(Wait):
    """A handler awaits a future on a loop; subclasses say what that waits for."""

    __slots__ = ("_refused",)

    def __init__(self, call: HandlerCall) -> None:
        super().__init__(call)
        self._refused: asyncio.Future[None]
        self._refused = asyncio.get_running_loop().create_future()

    async def until(self, done: asyncio.Future[Any]) -> None:
        """Wait for a future; if the wait is cancelled, the future is not."""
        await asyncio.wait({done, self._refused}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            self.check()

    def _wake(self) -> None:
        if not self._refused.done():
            self._refused.set_result(None)


class EndWait(CallWait):
    """A handler waits for the end of queues, which goes on if the wait is refused."""

    __slots__ = ("_nodes", "_what")

    def __init__(
        self, call: HandlerCall, nodes: Callable[[], Collection[Node]], what: str
    ) -> None:
        super().__init__(call)
        self._nodes = nodes
        self._what = what

    def targets(self) -> Collection[Node]:
        return () if self.refusal is not None else self._nodes()

    def _describe(self) -> str:
        return f"{self._what}, does not end"


class BudgetWait(RoomWait):
    """A producer in a handler waits for slots, or for room that all partitions share.

    Whichever drain task takes, or settles, may make that room. So the wait is hopeless
    only when all of them wait for it; and since each of them may make too little, it
    looks again whenever the room changes.
    """

    __slots__ = ()

    needs_one = True

    @property
    def place(self) -> Hashable:
        return self.call, self._partition

    def is_for_room(self) -> bool:
        """Whether it lacks nothing but room, or a producer before it in line does."""
        partition = cast("SizedPartition[Any]", self._partition)
        return self._lacks() and partition.lacks_room is not None

    def targets(self) -> Collection[Node]:
        if not self.is_for_room():
            return super().targets()
        last_owner = self._detector.ownership.last_owner
        owners = {last_owner(each.index) for each in self._budget.holders()}
        return [DrainTaskNode(self._detector, each) for each in owners]

    def needs(self, partition: Partition[Any]) -> bool:
        if not self.is_for_room():
            return super().needs(partition)
        return partition in self._budget.holders()

    def note(self) -> None:
        super().note()
        self._budget.waits_to_check[self] = None

    def end(self) -> None:
        self._budget.waits_to_check.pop(self, None)
        super().end()

    def look_again(self) -> None:
        """Refuse it if nobody can make room any more."""
        if self._lacks() and is_stuck(self):
            self.refuse()

    def _closes_cycle(self) -> bool:
        if not self.is_for_room():
            return super()._closes_cycle()
        known = self.call.detector.room_waits.get((self.call, self._partition))
        if isinstance(known, BudgetWait) and known.is_for_room():
            # One look is enough: after each change one of these waits looks again.
            return False
        self.call.detector.room_waits[self.call, self._partition] = self
        return is_stuck(self)

    @property
    def _budget(self) -> ByteBudget:
        assert self._detector.budget is not None
        return self._detector.budget


_RoomWaits: TypeAlias = "dict[tuple[HandlerCall, Partition[Any]], RoomWait]"
_LockRequest: TypeAlias = tuple[HandlerLock, asyncio.Future[None]]


class DeadlockDetector:
    """What one queue's handlers wait for, and what its drain tasks wait for.

    It stands for the queue in the graph of all, and in each call of a handler: so it
    has what others need of the queue there, its name, its ownership and its permit.
    """

    __slots__ = (
        "_at_lock",
        "_room_waits",
        "budget",
        "calls",
        "name",
        "ownership",
        "permit",
        "waits",
    )

    def __init__(
        self,
        name: str,
        ownership: Ownership,
        calls: RunningCalls,
        budget: ByteBudget | None = None,
    ) -> None:
        self.name = name
        self.calls = calls
        self.ownership = ownership
        # The room that all partitions share, where the sizes of items count.
        self.budget = budget
        # The permit that its drain task needs for a cycle, where queues share drain
        # tasks: such a queue has only one drain task.
        self.permit: Permit | None = None
        # The waits of calls of its handlers, for this queue or for others. There from
        # the start, since threads note theirs without a lock.
        self.waits: dict[Wait, None] = {}
        # Nearly all queues have no handlers that wait: made for the first that does.
        self._room_waits: _RoomWaits | None = None
        self._at_lock: dict[int | None, _LockRequest] | None = None

    @property
    def room_waits(self) -> _RoomWaits:
        """Of a call's waits for room in the same partition, one that has looked."""
        if self._room_waits is None:
            self._room_waits = {}
        return self._room_waits

    @property
    def at_lock(self) -> dict[int | None, _LockRequest]:
        """Drain tasks that wait to enter a handler, and their place in its line."""
        if self._at_lock is None:
            self._at_lock = {}
        return self._at_lock

    def wait_for_room(
        self, partition: Partition[Any], waiter: Waiter
    ) -> RoomWait | None:
        """Return the caller's wait for room in this queue, if a handler calls."""
        call = current_call()
        if call is None:
            return None
        kind = RoomWait if self.budget is None else BudgetWait
        return kind(call, self, partition, waiter)

    def waits_for(self, drain_task: int | None, call: HandlerCall) -> bool:
        """Whether the drain task waits for this queue's call that is about to wait."""
        if call.detector is not self or drain_task is None:
            return False
        if call.drain_task == drain_task:
            return True
        node = DrainTaskNode(self, drain_task)
        own = DrainTaskNode(self, call.drain_task)
        return find((node,), lambda each: each.call is call, (own,)) is not None

    def may_own(self, drain_task: int, partition: Partition[Any]) -> bool:
        """Whether the drain task waits for no call that waits for the partition."""
        node = DrainTaskNode(self, drain_task)
        if any(each.needs_one and each.needs(partition) for each in node.waits()):
            return False
        return find((node,), lambda each: each.needs(partition)) is None

    async def enter_handler(
        self, lock: HandlerLock, mode: Hashable, drain_task: int | None
    ) -> None:
        """Enter a handler, once the calls before have left it.

        The drain task lends its permit meanwhile. Inside it holds the permit, also if
        it did not before.
        """
        permit = None if drain_task is None else self.permit
        if not lock.try_acquire(mode):
            answer = lock.request(mode)
            try:
                try:
                    self.at_lock[drain_task] = lock, answer
                    refuse_cycles(DrainTaskNode(self, drain_task))
                    if permit is not None:
                        permit.lend()
                    await answer
                finally:
                    self.at_lock.pop(drain_task, None)
            except BaseException:
                # Also for a signal handler's error: the request would be granted later,
                # and the lock never be left.
                lock.withdraw(mode, answer)
                raise
        if permit is not None:
            try:
                await permit.regain()
            except BaseException:
                lock.release(mode)
                raise

    def waits_of(self, is_one: Callable[[HandlerCall], bool]) -> list[Wait]:
        """Return the waits of calls that `is_one` selects, and that are not over."""
        return [
            wait
            for wait in list(self.waits)
            if not wait.call.is_over and is_one(wait.call)
        ]

    def waits_inside(
        self, lock: HandlerLock, answer: asyncio.Future[None]
    ) -> Iterable[Wait]:
        """Return the waits of calls that keep one in the line out of the handler.

        Once it is inside, its call holds the lock alone, so only its own waits count.
        """
        modes = lock.modes_ahead_of(answer) or (EXCLUSIVE,)

        def keeps_out(call: HandlerCall) -> bool:
            return call.lock is lock and any(
                excludes(each, call.mode) for each in modes
            )

        waits = self.waits_of(keeps_out)
        return waits if answer.done() else (*waits, *lock.outer_waits())
