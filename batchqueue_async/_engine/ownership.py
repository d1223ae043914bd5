"""Which drain task may take from which partition: the only record of it.

Invariant (promise E4): every partition has one owner or is in a handoff. Partition p
starts with drain task p % drain_tasks; growth keeps all owners. What each drain task
owns is derived from this record, never stored beside it.
"""

from __future__ import annotations

IN_HANDOFF = -1


class Ownership:
    """Owner of each partition, by index."""

    __slots__ = ("_derived", "_owners", "drain_tasks", "version")

    def __init__(self, drain_tasks: int, partitions: int) -> None:
        self.drain_tasks = drain_tasks
        self._owners: list[int] = []
        self._derived: list[tuple[int, ...]] | None = None
        self.version = 0
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        """Give each new partition an owner; the others keep theirs."""
        for index in range(len(self._owners), partitions):
            self._owners.append(index % self.drain_tasks)
        self._changed()

    def owner_of(self, partition: int) -> int:
        """Return the drain task, or `IN_HANDOFF`."""
        return self._owners[partition]

    def owned_by(self, drain_task: int) -> tuple[int, ...]:
        """Return the indexes of the drain task's partitions, ascending."""
        if self._derived is None:
            owned: list[list[int]] = [[] for _ in range(self.drain_tasks)]
            for partition, owner in enumerate(self._owners):
                if owner != IN_HANDOFF:
                    owned[owner].append(partition)
            self._derived = [tuple(each) for each in owned]
        return self._derived[drain_task]

    def snapshot(self) -> list[int]:
        return list(self._owners)

    def revoke(self, partition: int) -> None:
        """Begin a handoff: nobody may take from the partition."""
        self._owners[partition] = IN_HANDOFF
        self._changed()

    def grant(self, partition: int, drain_task: int) -> None:
        """End a handoff."""
        self._owners[partition] = drain_task
        self._changed()

    def _changed(self) -> None:
        self._derived = None
        self.version += 1
