"""A handler's wait for room that all partitions of a queue share.

Whichever drain task takes, or settles, may make that room. So the wait is hopeless only
when all of them wait for it; and since each of them may make too little, it looks again
whenever the room changes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, cast

from batchqueue_async._engine.handlers.find_deadlock import is_stuck
from batchqueue_async._engine.handlers.handler_waits import RoomWait
from batchqueue_async._engine.handlers.wait_for_graph import (
    DrainTaskNode,
    Node,
)
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.shared_room import Room
from batchqueue_async._engine.partitions.sized_partition import SizedPartition


class SharedRoomWait(RoomWait):
    """A producer in a handler waits for slots of a partition, or for the room."""

    __slots__ = ()

    needs_one = True

    @property
    def place(self) -> Hashable:
        """Whose it is, and where."""
        return self.call, self._partition

    def is_for_room(self) -> bool:
        """Whether it lacks nothing but room, or whoever is before it in its line."""
        partition = cast("SizedPartition[Any]", self._partition)
        return self._lacks() and partition.lacks_room is not None

    def targets(self) -> Collection[Node]:
        if not self.is_for_room():
            return super().targets()
        last_owner = self._detector.ownership.last_owner
        owners = {last_owner(each.index) for each in self._room.holders()}
        return [DrainTaskNode(self._detector, each) for each in owners]

    def needs(self, partition: Partition[Any]) -> bool:
        if not self.is_for_room():
            return super().needs(partition)
        return partition in self._room.holders()

    def note(self) -> None:
        super().note()
        self._room.lookers[self] = None

    def end(self) -> None:
        self._room.lookers.pop(self, None)
        super().end()

    def look_again(self) -> None:
        """Refuse it if nobody can make room any more."""
        if self._lacks() and is_stuck(self):
            self.refuse()

    def _closes_cycle(self) -> bool:
        if not self.is_for_room():
            return super()._closes_cycle()
        known = self.call.detector.rooms.get((self.call, self._partition))
        if isinstance(known, SharedRoomWait) and known.is_for_room():
            # Having looked once is enough: with each change one looks again.
            return False
        self.call.detector.rooms[self.call, self._partition] = self
        return is_stuck(self)

    @property
    def _room(self) -> Room:
        assert self._detector.room is not None
        return self._detector.room
