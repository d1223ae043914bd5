"""Attempts at epochs, from `begin` to `commit` or `abort`: the same for every store."""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from batchqueue_async import BatchQueueError

from .epochs import Epoch, require_epoch
from .forks import watch_forks

T = TypeVar("T")
A = TypeVar("A")


@dataclass(slots=True)
class _Open(Generic[A]):
    """An attempt, and which calls for it go on."""

    attempt: A
    writes: int = 0
    is_in_commit: bool = False


class StagingEpochSink(ABC, Generic[T, A]):
    """An `EpochSink` whose rows wait somewhere until they are published.

    A store says how, in the words of `StagedSink`: `_stage`, `_publish`, `_discard`.
    All methods also raise what the store does when it is gone, refuses or is slow:
    `sqlite3.Error`, `asyncpg.PostgresError`, `OSError`, `TimeoutError`.
    """

    def __init__(self) -> None:
        self._attempts: dict[Epoch, _Open[A]] = {}
        watch_forks(self)

    async def begin(self, epoch: Epoch) -> None:
        """Start an attempt; what earlier ones left is discarded."""
        require_epoch(epoch)
        await self.abort(epoch)
        self._attempts[epoch] = _Open(await self._start(epoch))

    async def write(self, epoch: Epoch, items: list[T]) -> None:
        """Add the items' rows to the attempt.

        Raises:
            BatchQueueError: The epoch was not begun, is in its `commit`, or can't be
                committed any more.
            TypeError: An item is nothing that a row can be made of.
            ValueError: A row has too many values, or too few, or wrong ones.
        """
        current = self._current(epoch)
        # A store may go through them twice, which a generator outlives only empty; and
        # on a thread, while its caller changes the list.
        given = [*items]
        current.writes += 1
        try:
            await self._stage(current.attempt, given)
        finally:
            current.writes -= 1

    async def commit(self, epoch: Epoch) -> None:
        """Make the rows and the fence visible in one transaction.

        Raises:
            BatchQueueError: The epoch was not begun, is in another `commit`, or has
                lost rows; or a `write`, whose rows it would lack, has not returned.
        """
        current = self._current(epoch)
        if current.writes:
            msg = f"{epoch} can't be committed yet: a `write` of it has not returned"
            raise BatchQueueError(msg)
        current.is_in_commit = True
        try:
            await self._publish(epoch, current.attempt)
        finally:
            current.is_in_commit = False
        if self._attempts.get(epoch) is current:  # it may have begun again meanwhile
            del self._attempts[epoch]

    async def abort(self, epoch: Epoch) -> None:
        """Discard what the attempt wrote."""
        current = self._attempts.pop(epoch, None)
        if current is not None:
            await self._discard(epoch, current.attempt)

    def leave_to_parent(self) -> list[object]:
        """Forget the attempts, in a forked child: its parent goes on with them."""
        attempts, self._attempts = self._attempts, {}
        return [*attempts.values()]

    @abstractmethod
    async def is_committed(self, epoch: Epoch) -> bool:
        """Return whether the fence is there."""

    @abstractmethod
    async def _start(self, epoch: Epoch) -> A:
        """Make a place for rows; remove those that died with their process."""

    @abstractmethod
    async def _stage(self, attempt: A, items: list[T]) -> None:
        """Add rows that nobody sees."""

    @abstractmethod
    async def _publish(self, epoch: Epoch, attempt: A) -> None:
        """Make them visible with the fence, unless it is there; remove the place."""

    @abstractmethod
    async def _discard(self, epoch: Epoch, attempt: A) -> None:
        """Remove the place and what is in it."""

    def _current(self, epoch: Epoch) -> _Open[A]:
        if epoch not in self._attempts:
            msg = f"{epoch} is not open: `begin` comes first, once for each attempt"
            raise BatchQueueError(msg)
        current = self._attempts[epoch]
        if current.is_in_commit:
            msg = f"{epoch} is in a `commit` that has not returned"
            raise BatchQueueError(msg)
        return current


@dataclass(slots=True)
class Writes:
    """An attempt with a staging table of its own, and its writes.

    A write counts when it has returned. One that failed, or was cancelled in the
    middle, may have left rows behind; they carry a number that is not acknowledged, and
    are left out. What is acknowledged is how many rows a write added, by its number.
    Types are those of the table's columns, by name, in the store's own words.
    """

    table: str
    types: dict[str, Any] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    _last: int = 0

    @property
    def rows(self) -> int:
        """How many rows the epoch has so far."""
        return sum(self.acknowledged.values())

    def next_number(self) -> int:
        """Return the number of a new write."""
        self._last += 1
        return self._last


def prefix(epoch: Epoch, target: str = "") -> str:
    """Return what the names of all attempts at an epoch start with.

    A digest: it has one length, and no character that a name must not have. Where
    attempts for several targets lie side by side, their names differ by the target.
    """
    of_target = f"\0{target}" if target else ""
    text = f"{epoch.query}\0{epoch.batch}{of_target}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"epoch_{digest[:16]}_"


def new_name(epoch: Epoch, target: str = "") -> str:
    """Return a name for a new attempt."""
    return f"{prefix(epoch, target)}{uuid.uuid4().hex[:12]}"
