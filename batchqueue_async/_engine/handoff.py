"""Hands partitions from one drain task to another.

A handoff has two phases. Revoke: nobody may take from the partition. Then a fence: the
old owner's current cycle ends, and no batch of the partition is parked. Grant: the new
owner may take. Items wait in their partition meanwhile, so none is lost, doubled or
reordered, and no handler is entered by two drain tasks. All that move together are
revoked at once, so they take as long as the slowest old owner's cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from batchqueue_async._engine.drain_task import DrainTask
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition

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

    def __init__(
        self, layout: Layout[T], drain_tasks: Sequence[DrainTask[T]], own_work: OwnWork
    ) -> None:
        self._layout = layout
        self._drain_tasks = drain_tasks
        self._own_work = own_work
        self._under_way: list[Move[T]] = []

    async def hand_over(self, moves: list[Move[T]], timeout: float) -> None:
        """Hand over together; what takes longer than `timeout` is called off."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self._under_way = list(moves)
        for move in moves:
            self._layout.ownership.revoke(move.partition.index)
        fences = {
            old: self._drain_tasks[old].cycle_end() for old in {m.old for m in moves}
        }
        while self._under_way:
            for move in list(self._under_way):
                if fences[move.old].done() and move.partition.held is None:
                    self._finish(move)
            left = deadline - loop.time()
            if not self._under_way or left <= 0:
                break
            # A batch may be parked, and hold its partition, until the cycle's end.
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
        held = move.partition.held
        return held.lifted() if fence.done() and held is not None else fence

    def _finish(self, move: Move[T]) -> None:
        """Grant, unless somebody waits here for whom the new owner waits."""
        index = move.partition.index
        if self._own_work.may_own(move.new, move.partition):
            self._layout.ownership.grant(index, move.new)
        else:
            self._layout.ownership.restore(index)
        self._under_way.remove(move)
        self._notice(move.partition)

    def call_off(self) -> None:
        """End the handoffs that are under way: their old owners go on."""
        for move in self._under_way:
            self._layout.ownership.restore(move.partition.index)
            self._notice(move.partition)
        self._under_way = []

    def _notice(self, partition: Partition[T]) -> None:
        owner = self._layout.owner_of(partition)
        if owner is not None:
            self._drain_tasks[owner].notice(partition, 0)
