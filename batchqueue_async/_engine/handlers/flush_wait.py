"""A handler's wait for a flush, and the partitions of its own queue that are left out.

`Flush` leaves out drain tasks that wait for the handler when it flushes. A drain task
may come to wait for it later: at the lock of a hook that flushes, or for the end of an
`on_open`. Its partitions are left out from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.handlers.deadlock_detector import CallWait
from batchqueue_async._engine.handlers.wait_for_graph import (
    DrainTaskNode,
    Node,
    OnFlushNode,
    on,
)

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
    from batchqueue_async._engine.partitions.accounts import Watcher
    from batchqueue_async._engine.partitions.partition import Partition


class FlushWait(CallWait):
    """A handler waits until items that it saw in some partitions are settled."""

    __slots__ = ("_detector", "_left_out", "hooks", "partitions", "watcher")

    def __init__(
        self, call: HandlerCall, detector: DeadlockDetector, watcher: Watcher
    ) -> None:
        super().__init__(call)
        self._detector = detector
        self.watcher = watcher
        self.partitions: Sequence[Partition[Any]] = ()
        # The calls of `on_flush` that it waits for afterwards.
        self.hooks: Sequence[OnFlushNode] = ()
        # Drain tasks that have come to wait for the handler.
        self._left_out: set[int] = set()

    def targets(self) -> Collection[Node]:
        if self.refusal is not None:
            return ()
        hooks = [each for each in self.hooks if not each.task.done()]
        owners = self._owners() - self._left_out
        return [*(DrainTaskNode(self._detector, each) for each in owners), *hooks]

    def needs(self, partition: Partition[Any]) -> bool:
        return self.refusal is None and partition.accounts.is_watched_by(self.watcher)

    def refuse(self) -> None:
        """Leave out drain tasks that wait for the handler by now; refuse if none do."""
        waits_for = self._detector.waits_for
        owners = self._owners() - self._left_out
        left_out = {each for each in owners if waits_for(each, self.call)}
        if not left_out:
            super().refuse()
            return
        # At once, since the caller searches again; the rest on the queue's loop.
        self._left_out |= left_out
        on(self._loop, self._leave_out)

    def _leave_out(self) -> None:
        last_owner = self._detector.ownership.last_owner
        for each in self.partitions:
            if last_owner(each.index) in self._left_out:
                each.accounts.leave_out(self.watcher)

    def _owners(self) -> set[int]:
        last_owner = self._detector.ownership.last_owner
        return {last_owner(each.index) for each in self.partitions if self.needs(each)}

    def _describe(self) -> str:
        return f"a flush of {self._detector.name!r} does not end"
