"""Hands partitions over from one drain task to another.

A handoff has two phases. Revoke: nobody may take from the partition. Then it is waited
until the old owner's current cycle has ended and no batch of the partition is deferred.
Grant: the new owner may take. Items wait in their partition meanwhile, so none is lost,
doubled or reordered, and no handler is entered by two drain tasks. All partitions of a
round are revoked at once, so this takes as long as the slowest old owner's cycle.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts


@dataclass(slots=True, eq=False, repr=False)
class Move:
    """One partition's way from one drain task to another."""

    partition: Partition[Any]
    old: int
    new: int

    def back(self) -> Move:
        return Move(self.partition, self.new, self.old)


class Handoffs:
    """The moves that are under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._under_way: list[Move] = []

    async def move(self, moves: list[Move], timeout: float) -> None:
        """Hand over together; what takes longer than `timeout` is called off."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self._under_way = list(moves)
        for move in moves:
            self._parts.ownership.revoke(move.partition.index)
        cycle_ends = {
            old: self._parts.tasks.drain_tasks[old].cycle_end()
            for old in {m.old for m in moves}
        }
        while self._under_way:
            for move in list(self._under_way):
                if cycle_ends[move.old].done() and move.partition.pausing is None:
                    self._finish(move)
            left = deadline - loop.time()
            if not self._under_way or left <= 0:
                break
            # Until the cycle ends a batch may be deferred, which pauses its partition.
            await asyncio.wait(
                {
                    self._obstacle(move, cycle_ends[move.old])
                    for move in self._under_way
                },
                timeout=left,
                return_when=asyncio.FIRST_COMPLETED,
            )
        # An old owner whose cycle outlasts the timeout keeps its partitions.
        self.call_off()

    @staticmethod
    def _obstacle(move: Move, cycle_end: asyncio.Future[None]) -> asyncio.Future[None]:
        """Return what is to be waited for before the move can be finished."""
        pausing = move.partition.pausing
        return pausing.ended() if pausing and cycle_end.done() else cycle_end

    def _finish(self, move: Move) -> None:
        """Grant, unless the new owner waits for a call that needs this partition."""
        index = move.partition.index
        if self._parts.detector.may_own(move.new, move.partition):
            self._parts.ownership.grant(index, move.new)
        else:
            self._parts.ownership.restore(index)
        _wake_owner(move.partition)
        self._under_way.remove(move)

    def call_off(self) -> None:
        """Call off the handoffs under way: the old owners keep the partitions."""
        while self._under_way:
            move = self._under_way[-1]
            self._parts.ownership.restore(move.partition.index)
            _wake_owner(move.partition)
            # Last: if this is cut short, the next call does the move again.
            del self._under_way[-1]


def _wake_owner(partition: Partition[Any]) -> None:
    """Have its drain task look at it, whatever lingers: hooks may be due there."""
    partition.notify()
    if partition.owner is not None:
        partition.owner.wake()
