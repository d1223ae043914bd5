"""What one queue knows of the wait-for graph, and how its parts ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from batchqueue_async._engine.capacity import Permit
from batchqueue_async._engine.gate import ALONE, Gate
from batchqueue_async._engine.handler_waits import (
    EndWait,
    FlushWait,
    Producer,
    RoomWait,
)
from batchqueue_async._engine.keeper import Kept
from batchqueue_async._engine.ownership import Ownership
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import (
    Beside,
    Inside,
    current_call,
    handler_call,
)
from batchqueue_async._engine.wait_for_graph import (
    DrainTaskNode,
    Wait,
    excludes_any,
    find,
    refuse_cycles,
)


class OwnWork:
    """What one queue's handlers wait for, and what its drain tasks wait for."""

    # Nearly all queues have no handlers that wait, so the dicts come with the first.
    __slots__ = ("_at_gate", "_queue", "_rooms", "ownership", "permit", "waits")

    def __init__(self, queue: Kept, ownership: Ownership) -> None:
        self._queue = queue
        self.ownership = ownership
        # What its drain task needs for a cycle, where queues share drain tasks: each of
        # them has only one.
        self.permit: Permit | None = None
        # The waits of calls of its handlers, for this queue or for others. There from
        # the start, since threads note theirs without a lock.
        self.waits: dict[Wait, None] = {}
        self._rooms: dict[tuple[Inside, Partition[Any]], RoomWait] | None = None
        self._at_gate: dict[int | None, tuple[Gate, asyncio.Future[None]]] | None = None

    @property
    def rooms(self) -> dict[tuple[Inside, Partition[Any]], RoomWait]:
        """Of those that wait for room in the same partition, one that has looked."""
        if self._rooms is None:
            self._rooms = {}
        return self._rooms

    @property
    def at_gate(self) -> dict[int | None, tuple[Gate, asyncio.Future[None]]]:
        """Drain tasks that wait to enter a handler, and their place in its line."""
        if self._at_gate is None:
            self._at_gate = {}
        return self._at_gate

    @property
    def queue(self) -> Kept:
        return self._queue

    @property
    def name(self) -> str:
        return self._queue.name

    def inside(
        self, drain_task: int | None, gate: Gate | None = None, slot: Hashable = ALONE
    ) -> Inside:
        """Begin a call of user code by a drain task; None where none is at work."""
        return Inside(self, drain_task, gate, slot)

    def beside(self, drain_task: int | None, gate: Gate) -> Inside:
        """Begin a call that is alone in its handler, and not run by the drain task."""
        return Beside(self, drain_task, gate, ALONE)

    @property
    def is_inside(self) -> bool:
        """Whether a handler of this queue calls."""
        return handler_call(self) is not None

    def room(self, partition: Partition[Any], waiter: Producer) -> RoomWait | None:
        """Return the caller's wait for room in this queue, if a handler calls."""
        call = current_call()
        return None if call is None else RoomWait(call, self, partition, waiter)

    def flush(self, watcher: object) -> FlushWait | None:
        """Return the caller's wait for a flush of this queue, if a handler calls."""
        call = current_call()
        return None if call is None else FlushWait(call, self, watcher)

    def end(self, has_ended: Callable[[], bool]) -> EndWait | None:
        """Return the caller's wait for the end of this queue, if a handler calls."""
        call = current_call()
        return None if call is None else EndWait(call, self, has_ended)

    def waits_for(self, drain_task: int | None, call: Inside) -> bool:
        """Whether the drain task waits for a call of this queue's that is to wait."""
        if call.work is not self or drain_task is None:
            return False
        if call.drain_task == drain_task:
            return True
        node = DrainTaskNode(self, drain_task)
        return find((node,), lambda each: each.call is call) is not None

    def may_own(self, drain_task: int, partition: Partition[Any]) -> bool:
        """Whether nobody waits for the partition for whom the drain task waits."""
        node = DrainTaskNode(self, drain_task)
        return find((node,), lambda each: each.needs(partition)) is None

    async def enter(
        self, gate: Gate, slot: Hashable, drain_task: int | None = None
    ) -> None:
        """Enter a handler, once those who are before have left it.

        The drain task lends its permit meanwhile. Inside it has it, also if it did not
        have it before.
        """
        permit = None if drain_task is None else self.permit
        if not gate.try_enter(slot):
            answer = gate.ask(slot)
            self.at_gate[drain_task] = gate, answer
            try:
                refuse_cycles(DrainTaskNode(self, drain_task))
                if permit is not None:
                    permit.lend()
                await gate.admitted(slot, answer)
            finally:
                del self.at_gate[drain_task]
        if permit is not None:
            try:
                await permit.regain()
            except BaseException:
                gate.leave(slot)
                raise

    def waits_of(self, is_one: Callable[[Inside], bool]) -> list[Wait]:
        """Return the waits of the calls that are asked for and are not over."""
        return [
            wait
            for wait in list(self.waits)
            if not wait.call.is_over and is_one(wait.call)
        ]

    def waits_inside(self, gate: Gate, answer: asyncio.Future[None]) -> Iterable[Wait]:
        """Return the waits of calls that keep one in the line out of the handler.

        Whoever has been let in is alone: then it is his own.
        """
        slots = gate.line_to(answer) or (ALONE,)
        return self.waits_of(
            lambda call: call.gate is gate and excludes_any(slots, call.slot)
        )
