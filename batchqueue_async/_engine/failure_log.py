"""What ended other than handled, kept for the next `flush` of one object."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakSet

from batchqueue_async._policies.errors import Failure, Outcome

_KEPT = 100


class FailureLog:
    """A count and the first hundred failures since the last look.

    The bound also limits what the kept errors keep alive through their frames.
    """

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

    def __init__(self) -> None:
        self._logs: WeakSet[FailureLog] = WeakSet()
        # Threads displace items, too, once the queue is shared with them.
        self.guard: AbstractContextManager[Any] = nullcontext()

    def open(self) -> FailureLog:
        log = FailureLog()
        with self.guard:
            self._logs.add(log)
        return log

    def add(
        self,
        outcome: Outcome,
        items: list[Any],
        error: BaseException | None = None,
    ) -> None:
        with self.guard:
            for log in self._logs:
                log.add(outcome, items, error)

    def clear(self, log: FailureLog) -> tuple[int, tuple[Failure, ...]]:
        """Return what one object's log holds, and start it anew."""
        with self.guard:
            return log.clear()
