"""Moves partitions between drain tasks, in rounds, on a task of its own.

A move is a handoff in two phases. Revoke: nobody may take from the partition. Then a
fence: the old owner's current cycle ends, and no batch of the partition is parked.
Grant: the new owner may take. Items wait in their partition meanwhile, so none is lost,
doubled or reordered, and no handler is entered by two drain tasks. All moves of a round
are revoked together, so a round takes as long as the slowest old owner's cycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from batchqueue_async._engine.drain_task import DrainTask
from batchqueue_async._engine.layout import Layout
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.stats import RebalancingRound
from batchqueue_async._policies.balancing import Rebalancing

T = TypeVar("T")

logger = logging.getLogger("batchqueue_async")


@dataclass(frozen=True, slots=True)
class Move(Generic[T]):
    """One partition's way from one drain task to another."""

    partition: Partition[T]
    old: int
    new: int


class Rebalancer(Generic[T]):
    """Measures, asks the balancer, and hands partitions over."""

    def __init__(
        self,
        name: str,
        rebalancing: Rebalancing,
        layout: Layout[T],
        drain_tasks: Sequence[DrainTask[T]],
        own_work: OwnWork,
    ) -> None:
        self._name = name
        self._rebalancing = rebalancing
        self._layout = layout
        self._drain_tasks = drain_tasks
        self._own_work = own_work
        self._loads = layout.loads
        self._under_way: list[Move[T]] = []
        self.rounds = 0
        self.last_round: RebalancingRound | None = None

    async def run(self) -> None:
        """Do a round each interval, until cancelled."""
        loop, interval = asyncio.get_running_loop(), self._rebalancing.interval
        due = loop.time()
        while True:
            # What a handoff takes does not shift the rounds after it.
            due = max(due + interval, loop.time())
            await asyncio.sleep(due - loop.time())
            await self._round()

    def stop(self) -> None:
        """Call the handoffs that are under way off: their old owners go on."""
        for move in self._under_way:
            self._layout.ownership.restore(move.partition.index)
            self._notice(move.partition)
        self._under_way = []

    def _notice(self, partition: Partition[T]) -> None:
        owner = self._layout.owner_of(partition)
        if owner is not None:
            self._drain_tasks[owner].notice(partition)

    async def _round(self) -> None:
        loads, owners = self._loads.now(), self._layout.ownership.last_owners()
        self._loads.reset()
        plan = self._plan(loads, owners)
        self.rounds += 1
        moves = [
            Move(self._layout.partitions[index], old, new)
            for index, (old, new) in enumerate(zip(owners, plan, strict=True))
            if old != new
        ]
        moved = await self._hand_over(moves) if moves else 0
        self.last_round = RebalancingRound(
            number=self.rounds,
            moved=moved,
            ratio_before=_ratio(loads, owners, len(self._drain_tasks)),
            ratio_after=_ratio(
                loads,
                self._layout.ownership.last_owners()[: len(loads)],
                len(self._drain_tasks),
            ),
        )
        if moved:
            logger.info(
                "%s: moved %d partitions, max/min load %.2f -> %.2f",
                self._name,
                moved,
                self.last_round.ratio_before,
                self.last_round.ratio_after,
            )

    def _plan(self, loads: list[float], owners: list[int]) -> list[int]:
        """Ask the balancer; a plan that cannot be is logged and ignored."""
        balancer, count = self._rebalancing.balancer, len(self._drain_tasks)
        try:
            plan = balancer.assign(tuple(loads), tuple(owners), count)
            if plan is None:
                return owners
            wrong = _what_is_wrong(plan, len(owners), count)
            planned = owners if wrong else list(plan)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            logger.exception("%s: %r failed; nothing is moved", self._name, balancer)
            return owners
        if wrong:
            logger.error("%s: ignored a plan of %r: %s", self._name, balancer, wrong)
        return planned

    async def _hand_over(self, moves: list[Move[T]]) -> int:
        """Hand over together; returns how many partitions changed their owner."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._rebalancing.interval
        self._under_way = list(moves)
        for move in moves:
            self._layout.ownership.revoke(move.partition.index)
        fences = {
            old: self._drain_tasks[old].cycle_end() for old in {m.old for m in moves}
        }
        moved = 0
        while self._under_way:
            moved += sum(
                self._finish(move)
                for move in list(self._under_way)
                if fences[move.old].done() and not move.partition.hold.is_on
            )
            left = deadline - loop.time()
            if not self._under_way or left <= 0:
                break
            # A batch may be parked, and hold its partition, until the cycle's end.
            await asyncio.wait(
                {
                    fences[move.old]
                    if not fences[move.old].done()
                    else move.partition.hold.lifted()
                    for move in self._under_way
                },
                timeout=left,
                return_when=asyncio.FIRST_COMPLETED,
            )
        # An old owner's cycle outlasts the interval: it keeps what it has.
        self.stop()
        return moved

    def _finish(self, move: Move[T]) -> bool:
        """Grant, unless a handler of the new owner waits here for the old one."""
        index = move.partition.index
        is_safe = not (
            move.partition.line.has_handler_of(move.new)
            or self._own_work.is_flushing(move.new)
        )
        if is_safe:
            self._layout.ownership.grant(index, move.new)
        else:
            self._layout.ownership.restore(index)
        self._under_way.remove(move)
        self._notice(move.partition)
        return is_safe


def _what_is_wrong(plan: object, partitions: int, drain_tasks: int) -> str:
    if not isinstance(plan, Sequence):
        return f"it must be a sequence, got {plan!r}"
    if len(plan) != partitions:
        return f"its length must be {partitions}, got {len(plan)}"
    for index, owner in enumerate(plan):
        if type(owner) is not int or not 0 <= owner < drain_tasks:
            return (
                f"owner of partition {index} must be an int from 0 to "
                f"{drain_tasks - 1}, got {owner!r}"
            )
    return ""


def _ratio(loads: Sequence[float], owners: Sequence[int], drain_tasks: int) -> float:
    """Return max/min load of the drain tasks; inf if one has none, 1 if all have."""
    sums = [0.0] * drain_tasks
    for load, owner in zip(loads, owners, strict=True):
        sums[owner] += load
    if max(sums) == 0:
        return 1.0
    return max(sums) / min(sums) if min(sums) else float("inf")
