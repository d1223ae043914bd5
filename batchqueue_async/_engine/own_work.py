"""Tells a handler's own drain task from the others.

A handler that waits for what only its own drain task can do waits for ever: the drain
task waits for the handler.
"""

from __future__ import annotations

from typing import Any

from batchqueue_async._engine.ownership import Ownership
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import handler_call


class OwnWork:
    """What the calling handler's own drain task has to do, if a handler calls."""

    __slots__ = ("_ownership", "_queue")

    def __init__(self, queue: object, ownership: Ownership) -> None:
        self._queue = queue
        self._ownership = ownership

    @property
    def drain_task(self) -> int | None:
        """The drain task whose handler calls; None outside of handlers."""
        call = handler_call(self._queue)
        return None if call is None else call.drain_task

    def includes(self, partition: Partition[Any]) -> bool:
        """Whether the caller's drain task is the one that the partition waits for."""
        own = self.drain_task
        return own is not None and self._ownership.depends_on(partition.index, own)
