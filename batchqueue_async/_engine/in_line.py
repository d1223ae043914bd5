"""Where producers on the loop wait for room: the partition's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from batchqueue_async._engine.chunks import Tally
from batchqueue_async._engine.handler_waits import RoomWait
from batchqueue_async._engine.lifecycle import Lifecycle
from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.waiting_line import LoopWaiter

T = TypeVar("T")


class InLine(Generic[T]):
    """Puts chunks that have to wait, in their turn."""

    __slots__ = ("_lifecycle", "_own_work")

    def __init__(self, lifecycle: Lifecycle[T]) -> None:
        self._lifecycle = lifecycle
        self._own_work = lifecycle.own_work

    async def put(
        self, partition: Partition[T], chunk: Sequence[T], placed: Tally
    ) -> None:
        """Accept the chunk as room is made; less only if the partition closes."""
        waiter = LoopWaiter(
            self._lifecycle.running_loop(), len(chunk), partition.is_shared
        )
        partition.wait_in_line(waiter)
        wait = self._own_work.room(partition, waiter)
        try:
            if wait is None:
                await self._put(partition, chunk, waiter, placed)
            else:
                await self._put_from_handler(partition, chunk, waiter, wait, placed)
        finally:
            if waiter.wants:
                partition.leave_line(waiter)
                self._lifecycle.notice(partition)

    async def _put(
        self,
        partition: Partition[T],
        chunk: Sequence[T],
        waiter: LoopWaiter,
        placed: Tally,
    ) -> None:
        while not partition.is_closed:
            # Before what it puts in: see `Crew.notice`.
            self._lifecycle.notice(partition, waiter.granted)
            if waiter.granted:
                self._fill(partition, chunk, waiter, placed)
                if not waiter.wants:
                    break
            await waiter.wait()

    async def _put_from_handler(
        self,
        partition: Partition[T],
        chunk: Sequence[T],
        waiter: LoopWaiter,
        wait: RoomWait,
        placed: Tally,
    ) -> None:
        """Put as others do, but wait for no cycle, and lend the permit meanwhile."""
        async with wait:
            if waiter.granted < waiter.wants:
                wait.begin()
            while not partition.is_closed:
                if partition.line.may_finish(waiter):
                    # Before the last item is in: a cancellation leaves nothing behind.
                    await wait.over()
                self._lifecycle.notice(partition, waiter.granted)
                if waiter.granted:
                    self._fill(partition, chunk, waiter, placed)
                    if not waiter.wants:
                        break
                wait.check()
                # Also behind one who has his slots and waits for a permit to fill them.
                wait.begin()
                await waiter.wait()

    @staticmethod
    def _fill(
        partition: Partition[T],
        chunk: Sequence[T],
        waiter: LoopWaiter,
        placed: Tally,
    ) -> None:
        start = len(chunk) - waiter.wants
        placed.count += partition.offer_in_turn(waiter, chunk, start)
