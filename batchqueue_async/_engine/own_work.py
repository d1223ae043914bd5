"""Tells a handler's own drain task from the others.

A handler that waits for what only its own drain task can do waits for ever: the drain
task waits for the handler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from batchqueue_async._engine.capacity import Capacity
from batchqueue_async._engine.ownership import Ownership
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import Inside, current_call, handler_call


class OwnWork:
    """What the calling handler's own drain task has to do, if a handler calls."""

    __slots__ = ("_ownership", "_queue", "capacity")

    def __init__(self, queue: object, ownership: Ownership) -> None:
        self._queue = queue
        self._ownership = ownership
        # Drain capacity that the queue shares with others.
        self.capacity: Capacity | None = None

    @property
    def drain_task(self) -> int | None:
        """The drain task whose handler calls; None outside of handlers."""
        call = handler_call(self._queue)
        return None if call is None else call.drain_task

    def inside(self, drain_task: int | None) -> Inside:
        """Mark a call of user code by a drain task; None where none is at work."""
        return Inside(self._queue, drain_task, self.capacity)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark that the caller waits here for room, if a handler calls.

        Raises:
            WouldDeadlock: It holds drain capacity that this queue shares, and all who
                hold some wait so.
        """
        call, capacity = current_call(), self.capacity
        if call is None or capacity is None or call.capacity is not capacity:
            yield
        else:
            with capacity.waited_for_by(call):
                yield

    def includes(self, partition: Partition[Any]) -> bool:
        """Whether the caller's drain task is the one that the partition waits for."""
        own = self.drain_task
        return own is not None and self._ownership.depends_on(partition.index, own)
