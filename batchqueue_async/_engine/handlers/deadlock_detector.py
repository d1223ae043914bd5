"""What one queue asks of the wait-for graph, and what it shows there of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from batchqueue_async._engine.handlers.handler_lock_and_call import (
    EXCLUSIVE,
    HandlerCall,
    HandlerLock,
    current_call,
)
from batchqueue_async._engine.handlers.handler_waits import RoomWait, SharedRoomWait
from batchqueue_async._engine.handlers.running_calls import RunningCalls
from batchqueue_async._engine.handlers.wait_for_graph import (
    DrainTaskNode,
    Wait,
    find,
    refuse_cycles,
)

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.permits import Permit
    from batchqueue_async._engine.partitions.ownership import Ownership
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.partitions.shared_room import Room
    from batchqueue_async._engine.partitions.waiting_line import Waiter

_LockRequest: TypeAlias = tuple[HandlerLock, asyncio.Future[None]]


class DeadlockDetector:
    """What one queue's handlers wait for, and what its drain tasks wait for.

    It stands for the queue in the graph of all, and in each call of a handler: so it
    has what others need of the queue there, its name, its ownership and its permit.
    """

    def __init__(
        self,
        name: str,
        ownership: Ownership,
        calls: RunningCalls,
        room: Room | None = None,
    ) -> None:
        self.name = name
        self.calls = calls
        self.ownership = ownership
        # Which all partitions share, where the sizes of items count.
        self.room = room
        # What its drain task needs for a cycle, where queues share drain tasks: each of
        # them has only one.
        self.permit: Permit | None = None
        # The waits of calls of its handlers, for this queue or for others. There from
        # the start, since threads note theirs without a lock.
        self.waits: dict[Wait, None] = {}
        # Nearly all queues have no handlers that wait: these come with the first.
        self._rooms: dict[tuple[HandlerCall, Partition[Any]], RoomWait] | None = None
        self._at_lock: dict[int | None, _LockRequest] | None = None

    @property
    def rooms(self) -> dict[tuple[HandlerCall, Partition[Any]], RoomWait]:
        """Of those that wait for room in the same partition, one that has looked."""
        if self._rooms is None:
            self._rooms = {}
        return self._rooms

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
        kind = RoomWait if self.room is None else SharedRoomWait
        return kind(call, self, partition, waiter)

    def waits_for(self, drain_task: int | None, call: HandlerCall) -> bool:
        """Whether the drain task waits for a call of this queue's that is to wait."""
        if call.detector is not self or drain_task is None:
            return False
        if call.drain_task == drain_task:
            return True
        node, own = (
            DrainTaskNode(self, drain_task),
            DrainTaskNode(self, call.drain_task),
        )
        return find((node,), lambda each: each.call is call, (own,)) is not None

    def may_own(self, drain_task: int, partition: Partition[Any]) -> bool:
        """Whether nobody waits for the partition for whom the drain task waits."""
        node = DrainTaskNode(self, drain_task)
        if any(each.needs_one and each.needs(partition) for each in node.waits()):
            return False
        return find((node,), lambda each: each.needs(partition)) is None

    async def enter_handler(
        self, lock: HandlerLock, mode: Hashable, drain_task: int | None = None
    ) -> None:
        """Enter a handler, once those who are before have left it.

        The drain task lends its permit meanwhile. Inside it has it, also if it did
        not have it before.
        """
        permit = None if drain_task is None else self.permit
        if not lock.try_acquire(mode):
            answer = lock.request(mode)
            self.at_lock[drain_task] = lock, answer
            try:
                refuse_cycles(DrainTaskNode(self, drain_task))
                if permit is not None:
                    permit.lend()
                await lock.granted(mode, answer)
            finally:
                del self.at_lock[drain_task]
        if permit is not None:
            try:
                await permit.regain()
            except BaseException:
                lock.release(mode)
                raise

    def waits_of(self, is_one: Callable[[HandlerCall], bool]) -> list[Wait]:
        """Return the waits of the calls that are asked for and are not over."""
        return [
            wait
            for wait in list(self.waits)
            if not wait.call.is_over and is_one(wait.call)
        ]

    def waits_inside(
        self, lock: HandlerLock, answer: asyncio.Future[None]
    ) -> Iterable[Wait]:
        """Return the waits of calls that keep one in the line out of the handler.

        With nobody ahead in the line that call holds the lock alone, so only its own
        waits count.
        """
        modes = lock.modes_ahead_of(answer) or (EXCLUSIVE,)

        def keeps_out(call: HandlerCall) -> bool:
            return call.lock is lock and any(
                lock.excludes(each, call.mode) for each in modes
            )

        waits = self.waits_of(keeps_out)
        return waits if answer.done() else (*waits, *lock.outer_waits())
