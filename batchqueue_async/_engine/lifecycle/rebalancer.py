"""Moves partitions between drain tasks, in rounds, on a task of its own.

A round measures loads, asks the balancer for a plan, and hands partitions over. If some
moves are called off, and the others without them do harm, these are undone.
"""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from batchqueue_async._engine.lifecycle.adaptive_drain_tasks import AdaptiveRounds
from batchqueue_async._engine.lifecycle.handoffs import Handoffs, Move
from batchqueue_async._engine.runtime.loop_end import is_cancelled_for_good, uncancel
from batchqueue_async._engine.stats import RebalancingRound
from batchqueue_async._log import logger

# Imported now, so that the first round does not stall the loop for an import.
from batchqueue_async._policies import lpt  # noqa: F401
from batchqueue_async._policies.balancing import Rebalancing, load_sums
from batchqueue_async._threads.clock import sleep
from batchqueue_async._wording import shown

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


# For queues with adaptive drain tasks that declare no rebalancing.
_OF_ADAPTIVE = Rebalancing(interval=1.0)


class Rebalancer:
    """Measures, asks the balancer, and hands partitions over."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._rebalancing = parts.config.rebalancing or _OF_ADAPTIVE
        # Set if the number of drain tasks is adaptive.
        self.adaptive: AdaptiveRounds | None = None
        if parts.ownership.active is not None:
            self.adaptive = AdaptiveRounds(parts, parts.ownership.active)
        self._handoffs = Handoffs(parts)
        # Whether `run` is to end when it is cancelled: all of the loop's tasks are.
        self.is_suspended = False
        self.rounds = 0
        self.last_round: RebalancingRound | None = None

    async def run(self) -> None:
        """Do a round each interval, until cancelled."""
        loop, interval = asyncio.get_running_loop(), self._rebalancing.interval
        due = loop.time()
        # Handoffs may be left of a run that a signal handler has cut short.
        self.stop()
        while True:
            try:
                # The time that a handoff takes does not shift the rounds after it.
                due = max(due + interval, loop.time())
                await sleep(due - loop.time())
                if self._parts.tasks.rebalancing is not asyncio.current_task():
                    # It was struck as it was started; another one is, or will be.
                    return
                await self._round()
            except asyncio.CancelledError:
                # No partition may be left in a handoff that nobody ends.
                self.stop()
                if self.is_suspended or is_cancelled_for_good():
                    raise
                uncancel()
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                self.stop()
                raise
            except BaseException:  # noqa: BLE001 - no memory; a signal handler's
                self.stop()
                says, name = "%s: rebalancing goes on", self._parts.name
                logger.exception(says, name, queue=name)

    def stop(self) -> None:
        """Call off the handoffs under way: the old owners keep the partitions."""
        self._handoffs.call_off()

    async def _round(self) -> None:
        if self.adaptive is not None:
            self.adaptive.end_round()
            if self.adaptive.is_undisturbed:
                # The loads add up for the longer round, too.
                return
        loads, owners = self._parts.loads.now(), self._parts.ownership.last_owners()
        self._parts.loads.reset()
        plan = self._plan(loads, owners)
        tries_more = self.adaptive is not None and self.adaptive.count.tries_more
        if tries_more and sum(map(bool, loads)) < self._count():
            # If calls outlast a round, hardly anything is taken in it, and the balancer
            # has no loads to share out.
            plan = _with_all_at_work(plan, self._count())
        self.rounds += 1
        moves = [
            Move(self._parts.partitions[index], old, new)
            for index, (old, new) in enumerate(zip(owners, plan, strict=True))
            if old != new
        ]
        if moves:
            await self._handoffs.move(moves, self._rebalancing.interval)
            await self._undo_if_worse(loads, owners, moves)
        self._conclude(loads, owners)
        if self.adaptive is not None:
            # After the handoffs: their time says nothing about the count.
            is_as_planned = self._owners_now(loads) == plan
            self.adaptive.begin_round(is_as_planned=is_as_planned)

    async def _undo_if_worse(
        self, loads: list[float], before: list[int], moves: list[Move]
    ) -> None:
        """Hand moved partitions back if, without the called off moves, they do harm."""
        now = self._owners_now(loads)
        done = [move for move in moves if now[move.partition.index] == move.new]
        if len(done) < len(moves) and self._most(loads, now) > self._most(
            loads, before
        ):
            back = [move.back() for move in done]
            await self._handoffs.move(back, self._rebalancing.interval)

    def _most(self, loads: list[float], owners: list[int]) -> float:
        return max(load_sums(loads, owners, self._count_with(owners)))

    def _owners_now(self, loads: list[float]) -> list[int]:
        # Partitions may have been added since the loads were taken.
        return self._parts.ownership.last_owners()[: len(loads)]

    def _conclude(self, loads: list[float], before: list[int]) -> None:
        """Keep the round for `stats`, and log it if it moved something."""
        now = self._owners_now(loads)
        moved = sum(map(operator.ne, before, now))
        self.last_round = RebalancingRound(
            number=self.rounds,
            moved=moved,
            ratio_before=_ratio(load_sums(loads, before, self._count_with(before))),
            ratio_after=_ratio(load_sums(loads, now, self._count_with(now))),
        )
        if moved:
            logger.info(
                "%s: moved %d partition%s, max/min load %.2f -> %.2f",
                self._parts.name,
                moved,
                "" if moved == 1 else "s",
                self.last_round.ratio_before,
                self.last_round.ratio_after,
                queue=self._parts.name,
                moved=moved,
            )

    def _count(self) -> int:
        """Return how many drain tasks are to own partitions."""
        ownership = self._parts.ownership
        return ownership.active or len(self._parts.tasks.drain_tasks)

    def _count_with(self, owners: list[int]) -> int:
        """Return `_count`, or more if drain tasks beyond it still own partitions."""
        return max(self._count(), 1 + max(owners, default=0))

    def _plan(self, loads: list[float], owners: list[int]) -> list[int]:
        """Ask the balancer; an invalid plan is logged and ignored."""
        balancer, count = self._rebalancing.balancer, self._count()
        if self.adaptive is not None:
            # Partitions of drain tasks beyond the count move, whatever is planned.
            owners = [
                owner if owner < count else index % count
                for index, owner in enumerate(owners)
            ]
        try:
            plan = balancer.assign(tuple(loads), tuple(owners), count)
            if plan is None:
                return owners
            wrong = _what_is_wrong(plan, len(owners), count)
            planned = owners if wrong else list(plan)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a failing balancer moves nothing
            self._parts.repeated_failures.error(
                "%s: %s failed; nothing is moved",
                self._parts.name,
                shown(balancer),
                title=f"{self._parts.name}: the balancer failed",
                error=error,
                queue=self._parts.name,
            )
            return owners
        if wrong:
            says, name = "%s: ignored a plan of %s: %s", self._parts.name
            logger.error(says, name, shown(balancer), wrong, queue=name)
        return planned


def _with_all_at_work(plan: Sequence[int], drain_tasks: int) -> list[int]:
    """Move partitions from drain tasks with most to those with none, until even."""
    result = list(plan)
    owned = Counter(result)
    for idle in set(range(drain_tasks)) - owned.keys():
        while True:
            richest, most = owned.most_common(1)[0]
            if most <= owned[idle] + 1:
                break
            result[len(result) - 1 - result[::-1].index(richest)] = idle
            owned[richest] -= 1
            owned[idle] += 1
    return result


def _what_is_wrong(plan: object, partitions: int, drain_tasks: int) -> str:
    if not isinstance(plan, Sequence):
        return f"it must be a sequence, got {shown(plan)}"
    if len(plan) != partitions:
        return f"its length must be {partitions}, got {len(plan)}"
    for index, owner in enumerate(plan):
        if type(owner) is not int or not 0 <= owner < drain_tasks:
            return (
                f"owner of partition {index} must be an int from 0 to "
                f"{drain_tasks - 1}, got {shown(owner)}"
            )
    return ""


def _ratio(sums: Sequence[float]) -> float:
    """Return max/min load of the drain tasks; inf if one has none, 1 if all have."""
    if max(sums) == 0:
        return 1.0
    return max(sums) / min(sums) if min(sums) else float("inf")
