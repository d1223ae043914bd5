"""What ended other than handled, kept for the next `flush` of one object."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import ref

from batchqueue_async._policies.errors import Failure, Outcome

_KEPT = 100
_UNGUARDED: AbstractContextManager[Any] = nullcontext()


class FailureLog:
    """A count and the first hundred failures since the last look.

    The bound also limits what the kept errors keep alive through their frames.
    """

    __slots__ = (
        "__weakref__",
        "_count",
        "_failures",
    )

    def __init__(self) -> None:
        self._count = 0
        self._failures: list[Failure] = []

    def add(
        self, outcome: Outcome, items: list[Any], error: BaseException | None
    ) -> None:
        self._count += len(items)
        for item in items[: _KEPT - len(self._failures)]:
            self._failures.append(Failure(item, error, outcome))

    def clear(self) -> tuple[int, tuple[Failure, ...]]:
        """Return what was logged, and forget it."""
        count, failures = self._count, tuple(self._failures)
        self._count, self._failures = 0, []
        return count, failures


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
        with self.guard:
            # Of a copy: a log may be forgotten at any moment.
            for known in tuple(self._logs):
                if (log := known()) is not None:
                    log.add(outcome, items, error)

    def clear(self, log: FailureLog) -> tuple[int, tuple[Failure, ...]]:
        """Return what one object's log holds, and start it anew."""
        with self.guard:
            return log.clear()
