"""Partitions on their way from one drain task to another.

A handoff has two phases. Revoke: nobody may take from the partition. Then a fence: the
old owner's current cycle ends, and no batch of the partition is deferred. Grant: the
new owner may take. Items wait in their partition meanwhile, so none is lost, doubled or
reordered, and no handler is entered by two drain tasks. All that move together are
revoked at once, so they take as long as the slowest old owner's cycle.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from batchqueue_async._engine.partitions.partition import Partition

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class Move(Generic[T]):
    """One partition's way from one drain task to another."""

    partition: Partition[T]
    old: int
    new: int

    def back(self) -> Move[T]:
        """Return the move that undoes this one."""
        return Move(self.partition, self.new, self.old)


class Handoffs(Generic[T]):
    """The moves that are under way."""

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        self._under_way: list[Move[T]] = []

    async def move(self, moves: list[Move[T]], timeout: float) -> None:
        """Hand over together; what takes longer than `timeout` is called off."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self._under_way = list(moves)
        for move in moves:
            self._parts.ownership.revoke(move.partition.index)
        fences = {
            old: self._parts.tasks.drain_tasks[old].cycle_end()
            for old in {m.old for m in moves}
        }
        while self._under_way:
            for move in list(self._under_way):
                if fences[move.old].done() and move.partition.pausing is None:
                    self._finish(move)
            left = deadline - loop.time()
            if not self._under_way or left <= 0:
                break
            # A batch may be deferred, and pause its partition, until the cycle's end.
            await asyncio.wait(
                {self._obstacle(move, fences[move.old]) for move in self._under_way},
                timeout=left,
                return_when=asyncio.FIRST_COMPLETED,
            )
        # Where an old owner's cycle outlasts the time, it keeps what it has.
        self.call_off()

    @staticmethod
    def _obstacle(move: Move[T], fence: asyncio.Future[None]) -> asyncio.Future[None]:
        """Return what is to be waited for before the move can be finished."""
        pausing = move.partition.pausing
        return pausing.ended() if fence.done() and pausing is not None else fence

    def _finish(self, move: Move[T]) -> None:
        """Grant, unless somebody waits here for whom the new owner waits."""
        index = move.partition.index
        if self._parts.detector.may_own(move.new, move.partition):
            self._parts.ownership.grant(index, move.new)
        else:
            self._parts.ownership.restore(index)
        self._under_way.remove(move)
        move.partition.notify()

    def call_off(self) -> None:
        """End the handoffs that are under way: their old owners go on."""
        for move in self._under_way:
            self._parts.ownership.restore(move.partition.index)
            move.partition.notify()
        self._under_way = []
