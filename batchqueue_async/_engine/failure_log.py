"""What ended other than handled, kept for the next `flush` of one object."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import ref

from batchqueue_async._engine.keeping import estimated_size, forget_locals
from batchqueue_async._policies.errors import (
    KEPT_BYTES,
    KEPT_FAILURES,
    BatchQueueError,
    Failure,
    OmittedItem,
    Outcome,
)
from batchqueue_async._wording import reason

_UNGUARDED: AbstractContextManager[Any] = nullcontext()


class FailureLog:
    """A count and the first hundred failures since the last look.

    Nobody may ever look. So what they keep alive is bounded, too.
    """

    __slots__ = (
        "__weakref__",
        "_count",
        "_failures",
        "_room",
    )

    def __init__(self) -> None:
        self._count = 0
        self._room = KEPT_BYTES
        # None while there are none: there are many logs, and few failures.
        self._failures: list[Failure] | None = None

    def add(
        self, outcome: Outcome, items: list[Any], error: BaseException | None
    ) -> None:
        self._count += len(items)
        if self._failures is None:
            self._failures = []
        most = KEPT_FAILURES - len(self._failures)
        if most <= 0:
            return
        if error is not None and not self._has_room_for(error):
            error = BatchQueueError(reason(error))
        for item in items[:most]:
            kept = item if self._has_room_for(item) else OmittedItem.of(item)
            self._failures.append(Failure(kept, error, outcome))

    def clear(self) -> tuple[int, tuple[Failure, ...]]:
        """Return what was logged, and forget it."""
        count, failures = self._count, tuple(self._failures or ())
        self._count, self._failures, self._room = 0, None, KEPT_BYTES
        return count, failures

    def _has_room_for(self, value: object) -> bool:
        size = estimated_size(value, self._room)
        if size > self._room:
            return False
        self._room -= size
        return True


class FailureLogs:
    """The logs of all objects that flush one queue; forgotten with their objects."""

    __slots__ = (
        "_logs",
        "guard",
    )

    def __init__(self) -> None:
        # Not a WeakSet: for the one log that most queues have it is large.
        self._logs: list[ref[FailureLog]] = []
        # Threads displace items, too, once the queue is shared with them.
        self.guard: AbstractContextManager[Any] = _UNGUARDED

    def open(self) -> FailureLog:
        log = FailureLog()
        with self.guard:
            self._logs.append(ref(log, self._logs.remove))
        return log

    def add(
        self,
        outcome: Outcome,
        items: list[Any],
        error: BaseException | None = None,
    ) -> None:
        if error is not None:
            forget_locals(error)
        with self.guard:
            # Of a copy: a log may be forgotten at any moment.
            for known in tuple(self._logs):
                if (log := known()) is not None:
                    log.add(outcome, items, error)

    def clear(self, log: FailureLog) -> tuple[int, tuple[Failure, ...]]:
        """Return what one object's log holds, and start it anew."""
        with self.guard:
            return log.clear()
