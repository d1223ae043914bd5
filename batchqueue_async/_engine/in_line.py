"""Where producers on the loop wait for room: the partition's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from batchqueue_async._engine.chunks import Tally
from batchqueue_async._engine.lifecycle import Lifecycle
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.waiting_line import LoopWaiter
from batchqueue_async._policies.errors import WouldDeadlock

T = TypeVar("T")


class InLine(Generic[T]):
    """Puts chunks that have to wait, in their turn."""

    __slots__ = ("_lifecycle", "_name", "_own_work")

    def __init__(self, lifecycle: Lifecycle[T]) -> None:
        self._lifecycle = lifecycle
        self._name = lifecycle.name
        self._own_work = lifecycle.own_work

    async def put(
        self, partition: Partition[T], chunk: Sequence[T], placed: Tally
    ) -> None:
        """Accept the chunk as room is made; less only if the partition closes."""
        waiter = LoopWaiter(
            self._lifecycle.running_loop(),
            len(chunk),
            self._own_work.drain_task,
            partition.is_shared,
        )
        partition.wait_in_line(waiter)
        accepted = 0
        try:
            self._refuse_deadlock(partition, waiter)
            while not partition.is_closed:
                # Before what it puts in: see `Crew.notice`.
                self._lifecycle.notice(partition, waiter.granted)
                if waiter.granted:
                    count = partition.offer_in_turn(waiter, chunk, accepted)
                    placed.count += count
                    accepted += count
                    if accepted == len(chunk):
                        break
                with self._own_work.waiting(lambda: not waiter.granted):
                    await waiter.wait()
        finally:
            partition.leave_line(waiter)
            if accepted < len(chunk):
                self._lifecycle.notice(partition)

    def _refuse_deadlock(self, partition: Partition[T], waiter: LoopWaiter) -> None:
        if waiter.granted < waiter.wants and self._own_work.includes(partition):
            msg = (
                f"a handler of {self._name!r} waits for room in partition "
                f"{partition.index}, which only its own drain task empties"
            )
            raise WouldDeadlock(msg)
