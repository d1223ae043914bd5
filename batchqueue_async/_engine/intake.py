"""The way in: refuse, place, or wait in line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from operator import countOf
from typing import Generic, TypeVar

from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.placement import SelectorPlacement, TypePlacement
from batchqueue_async._engine.waiting_line import LoopWaiter
from batchqueue_async._policies.buffering import WhenFull
from batchqueue_async._policies.errors import WouldDeadlock

T = TypeVar("T")


class Intake(Generic[T]):
    """Everything about accepting items but the hot path, which `BatchQueue` inlines."""

    def __init__(
        self,
        name: str,
        placement: TypePlacement[T] | SelectorPlacement[T],
        when_full: WhenFull,
        notice: Callable[[Partition[T]], None],
        own_work: OwnWork,
    ) -> None:
        self._name = name
        self._placement = placement
        self.waits = when_full is WhenFull.WAIT
        self._notice = notice
        self._own_work = own_work

    def put_now(self, item: T) -> bool:
        """Accept the item if there is room at once; else it counts as rejected."""
        partition = self._placement.partition_of(item)
        if self._offer(partition, (item,)):
            return True
        partition.reject(1)
        return False

    async def put(self, item: T) -> bool:
        """Accept the item, waiting in line for room where that is the policy."""
        partition = self._placement.partition_of(item)
        if self._offer(partition, (item,)):
            return True
        return await self._put_rest(partition, (item,)) == 1

    async def put_many(self, chunk: Sequence[T]) -> int:
        """Accept a chunk, partition by partition; returns how many were accepted."""
        accepted = 0
        for partition, run in self.runs(chunk):
            waiting = partition.items
            if 0 < len(waiting) <= partition.limit - len(run):
                # As in the hot path for one item: no edge is met.
                waiting.extend(run)
                accepted += len(run)
                continue
            placed = self._offer(partition, run)
            accepted += placed
            if placed < len(run):
                accepted += await self._put_rest(partition, run[placed:])
        return accepted

    def refuse(self, chunk: Sequence[T]) -> None:
        """Count items that came after closing, where they would have gone."""
        for item in chunk:
            try:
                partition = self._placement.partition_of(item)
            except Exception:  # noqa: BLE001 - refused it is, whatever the selector says
                partition = self._placement.first
            partition.reject(1)

    def _offer(self, partition: Partition[T], chunk: Sequence[T]) -> int:
        placed = partition.offer(chunk)
        if placed:
            self._notice(partition)
        return placed

    async def _put_rest(self, partition: Partition[T], chunk: Sequence[T]) -> int:
        accepted = 0
        if self.waits and not partition.is_closed:
            accepted = await self._wait_and_put(partition, chunk)
        partition.reject(len(chunk) - accepted)
        return accepted

    async def _wait_and_put(self, partition: Partition[T], chunk: Sequence[T]) -> int:
        waiter = LoopWaiter(
            asyncio.get_running_loop(), len(chunk), self._own_work.drain_task
        )
        partition.wait_in_line(waiter)
        accepted = 0
        try:
            self._refuse_deadlock(partition, waiter)
            with self._own_work.waiting():
                while not partition.is_closed:
                    self._notice(partition)
                    accepted += partition.offer_in_turn(waiter, chunk[accepted:])
                    if accepted == len(chunk):
                        break
                    await waiter.wait()
        finally:
            partition.leave_line(waiter)
            self._notice(partition)
        return accepted

    def _refuse_deadlock(self, partition: Partition[T], waiter: LoopWaiter) -> None:
        if waiter.granted < waiter.wants and self._own_work.includes(partition):
            msg = (
                f"a handler of {self._name!r} waits for room in partition "
                f"{partition.index}, which only its own drain task empties"
            )
            raise WouldDeadlock(msg)

    def runs(self, chunk: Sequence[T]) -> list[tuple[Partition[T], Sequence[T]]]:
        """Sort a chunk by partition, keeping the order within each."""
        if not chunk:
            return []
        first = type(chunk[0])
        if first in self._placement.routes and countOf(map(type, chunk), first) == len(
            chunk
        ):
            return [(self._placement.routes[first], chunk)]
        return self._sorted_runs(chunk)

    def _sorted_runs(
        self, chunk: Sequence[T]
    ) -> list[tuple[Partition[T], Sequence[T]]]:
        runs: dict[Partition[T], list[T]] = {}
        by_type = _ByType(self._placement.routes, runs)
        of = self._placement.partition_of
        if not self._placement.routes:
            for item in chunk:
                runs.setdefault(of(item), []).append(item)
            return list(runs.items())
        for item in chunk:
            try:
                by_type[type(item)].append(item)
            except KeyError:
                runs.setdefault(of(item), []).append(item)
        return list(runs.items())


class _ByType(dict[type, list[T]]):
    """The run of each type whose partition is settled."""

    def __init__(
        self,
        routes: dict[type, Partition[T]],
        runs: dict[Partition[T], list[T]],
    ) -> None:
        super().__init__()
        self._routes = routes
        self._runs = runs

    def __missing__(self, item_type: type) -> list[T]:
        run = self._runs.setdefault(self._routes[item_type], [])
        self[item_type] = run
        return run
