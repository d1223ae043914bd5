"""Which items meet an edge of a partition, where more is to be done than to append.

The edges are: empty (its time is noted), due (a drain task that sleeps has to wake up),
and full (who comes then waits). An owner that is awake looks at what waits before it
sleeps, so due is no edge for as long as that.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from batchqueue_async._engine.partitions.producers_queue import ProducersQueue

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.schedule_and_nap import Nap
    from batchqueue_async._engine.partitions.accounts import Accounts
    from batchqueue_async._engine.partitions.ages import Ages
    from batchqueue_async._engine.partitions.waiting_line import WaitingLine

T = TypeVar("T")


class EdgedQueue(ProducersQueue[T]):
    """Knows up to how many items one more meets no edge."""

    __slots__ = ()

    accounts: Accounts
    ages: Ages
    due_size: int
    guard: AbstractContextManager[Any]
    guarded_limit: int
    has_fast_path: bool
    is_shared: bool
    limit: int
    line: WaitingLine
    owner: Nap | None
    _maxsize: int

    def tell_when_due(self) -> None:
        """Its owner may sleep next: who makes it due has to say so from now on."""
        self.limit = min(self.limit, self.due_size - 1)

    def _set_limits(self) -> None:
        if self.line.head or self.is_closed:
            self.has_fast_path = False
            self.limit = self.guarded_limit = 0
            return
        self.has_fast_path = not self.is_shared and (
            self.ages.clock is None and self.accounts.watchers is None
        )
        if self.items:
            self._set_limits_for(len(self.items))
        else:
            self.limit = self.guarded_limit = 0

    def _set_limits_for(self, count: int) -> None:
        """Set them where so many items wait, and no producer does."""
        edge = self.due_size if count < self.due_size else self._maxsize
        self.guarded_limit = edge - 1
        if self.is_shared:
            self.limit = 0
        elif (owner := self.owner) is None or owner.listens:
            self.limit = edge - 1
        else:
            self.limit = self._maxsize


def arm(waiting: Iterable[EdgedQueue[Any]]) -> None:
    """Their owner may sleep next, and is about to ask which of them are due."""
    for partition in waiting:
        partition.tell_when_due()
