"""Which drain task may take from which partition: the only record of it.

Invariant (promise E4): every partition has one owner or is in a handoff, during which
its old owner is recorded. Partition p starts with drain task p % drain_tasks, of those
that are active; growth keeps all owners. What each drain task owns is derived from this
record; each partition is told who may take from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.linger_and_nap import Nap
    from batchqueue_async._engine.partitions.partition import Partition

# Of all queues in which nothing is handed over: never written to.
_NOTHING: Final[dict[int, None]] = {}


class Ownership:
    """Owner of each partition, by index."""

    __slots__ = (
        "_bound",
        "_derived",
        "_owners",
        "_partitions",
        "_revoked",
        "active",
        "drain_tasks",
        "version",
    )

    def __init__(self, partitions: Sequence[Partition[Any]]) -> None:
        self._partitions = partitions
        # How many drain tasks there are; and how many of the first ones own partitions.
        self.drain_tasks = 0
        self.active: int | None = None
        # The drain tasks' naps, which are told of arrivals, once the drain tasks run.
        self._bound: Sequence[Nap] | None = None
        # The owner of each partition; in a handoff the old owner.
        self._owners: list[int] = []
        self._revoked: dict[int, None] = _NOTHING
        self._derived: tuple[tuple[int, ...], ...] | None = None
        # Grows with each change, so that what is derived can be cached.
        self.version = 0

    def grow(self, first: int) -> None:
        """Give each partition from `first` on an owner, unless it has one."""
        for index in range(first, len(self._partitions)):
            if index == len(self._owners):
                self._owners.append(index % (self.active or self.drain_tasks))
            self._changed(index)

    def bind(self, naps: Sequence[Nap]) -> None:
        """Tell each partition the nap of its drain task: the drain tasks run now."""
        self._bound = naps
        for index in range(len(self._owners)):
            self._tell(index)

    def owner_of(self, partition: int) -> int | None:
        """Return the drain task, or None in a handoff."""
        return None if partition in self._revoked else self._owners[partition]

    def owners(self) -> list[int | None]:
        """Return each partition's owner, None for those in a handoff."""
        owners: list[int | None] = list(self._owners)
        for partition in self._revoked:
            owners[partition] = None
        return owners

    def owned_by(self, drain_task: int) -> tuple[int, ...]:
        """Return the indexes of the drain task's partitions, ascending."""
        if self._derived is None:
            owned: list[list[int]] = [[] for _ in range(self.drain_tasks)]
            for partition, owner in enumerate(self._owners):
                if partition not in self._revoked:
                    owned[owner].append(partition)
            self._derived = tuple(map(tuple, owned))
        return self._derived[drain_task]

    def last_owners(self) -> list[int]:
        """Return each partition's owner, the old one for those in a handoff."""
        return list(self._owners)

    def last_owner(self, partition: int) -> int:
        """Return the partition's owner; in a handoff the old one, until it lets go."""
        return self._owners[partition]

    def revoke(self, partition: int) -> None:
        """Begin a handoff: nobody may take from the partition."""
        if self._revoked is _NOTHING:
            self._revoked = {}
        self._revoked[partition] = None
        self._changed(partition)

    def grant(self, partition: int, drain_task: int) -> None:
        """End a handoff."""
        self._revoked.pop(partition, None)
        self._owners[partition] = drain_task
        self._changed(partition)

    def restore(self, partition: int) -> None:
        """Call a handoff off: the old owner goes on."""
        self.grant(partition, self._owners[partition])

    def _changed(self, partition: int) -> None:
        self._derived = None
        self.version += 1
        self._tell(partition)

    def _tell(self, partition: int) -> None:
        if self._bound is not None:
            owner = self.owner_of(partition)
            self._partitions[partition].owner = (
                None if owner is None else self._bound[owner]
            )
