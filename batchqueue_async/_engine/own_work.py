"""Tells a handler's own drain task from the others.

A handler that waits for what only its own drain task can do waits for ever: the drain
task waits for the handler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from batchqueue_async._engine.capacity import Capacity
from batchqueue_async._engine.gate import Gate
from batchqueue_async._engine.ownership import Ownership
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import Inside, current_call, handler_call

_NOTHING = contextlib.nullcontext()


class OwnWork:
    """What the calling handler's own drain task has to do, if a handler calls."""

    __slots__ = ("_flushing", "_ownership", "_queue", "at_gate", "capacity")

    def __init__(self, queue: object, ownership: Ownership) -> None:
        self._queue = queue
        self._ownership = ownership
        # Drain capacity that the queue shares with others.
        self.capacity: Capacity | None = None
        # Drain tasks that wait to enter a handler.
        self.at_gate: dict[int, Gate] = {}
        # Drain tasks whose handlers wait for a flush: they wait for each other.
        self._flushing: dict[int, None] = {}

    @property
    def drain_task(self) -> int | None:
        """The drain task whose handler calls; None outside of handlers."""
        call = handler_call(self._queue)
        return None if call is None else call.drain_task

    def inside(self, drain_task: int | None, gate: Gate | None = None) -> Inside:
        """Begin a call of user code by a drain task; None where none is at work."""
        # Capacity is held by drain tasks. `on_flush` may keep its drain task waiting at
        # the gate, so it counts as well.
        capacity = None if drain_task is None else self.capacity
        return Inside(self._queue, drain_task, capacity, gate)

    def waiting(
        self, is_blocked: Callable[[], bool]
    ) -> contextlib.AbstractContextManager[None]:
        """Mark that the caller waits for this queue's drain task, if a handler calls.

        Args:
            is_blocked: Whether it has still not got what it waits for.

        Raises:
            WouldDeadlock: It holds drain capacity that this queue shares, and all who
                hold some wait so.
        """
        capacity = self.capacity
        call = None if capacity is None else current_call()
        if call is None or capacity is None or call.capacity is not capacity:
            return _NOTHING
        return capacity.waited_for_by(call, is_blocked)

    def includes(self, partition: Partition[Any]) -> bool:
        """Whether the partition waits for the caller's drain task.

        Or for one that the caller keeps out of the handler which it is in.
        """
        call = handler_call(self._queue)
        if call is None or call.drain_task is None:
            return False
        owner = self._ownership.last_owner(partition.index)
        return owner == call.drain_task or self._keeps_out(owner)

    @contextlib.contextmanager
    def flushing(self) -> Iterator[None]:
        """Mark that the caller flushes, if a handler calls."""
        own = self.drain_task
        if own is None or own in self._flushing:
            yield
            return
        self._flushing[own] = None
        try:
            yield
        finally:
            self._flushing.pop(own, None)

    def is_flushing(self, drain_task: int) -> bool:
        """Whether a handler of the drain task waits for a flush."""
        return drain_task in self._flushing

    def _keeps_out(self, owner: int | None) -> bool:
        # The drain task waits to enter the handler that the caller is in.
        call = handler_call(self._queue)
        gate = None if call is None or owner is None else self.at_gate.get(owner)
        return call is not None and gate is not None and call.gate is gate

    def blocks_flush(self, drain_task: int | None) -> bool:
        """Whether a flush by the caller must not wait for this drain task.

        It is the caller's own, or its handler waits for a flush, too: they would wait
        for each other.
        """
        is_flushing = self.drain_task is not None and drain_task in self._flushing
        return is_flushing or self._keeps_out(drain_task)
