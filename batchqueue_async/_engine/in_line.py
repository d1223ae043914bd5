"""Where producers on the loop wait for room: the partition's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

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

    async def put(self, partition: Partition[T], chunk: Sequence[T]) -> int:
        """Accept the chunk as room is made; less only if the partition closes."""
        waiter = LoopWaiter(
            self._lifecycle.running_loop(), len(chunk), partition.is_shared
        )
        partition.wait_in_line(waiter)
        wait = self._own_work.room(partition, waiter)
        try:
            if wait is None:
                return await self._put(partition, chunk, waiter)
            return await self._put_from_handler(partition, chunk, waiter, wait)
        finally:
            partition.leave_line(waiter)
            self._lifecycle.notice(partition)

    async def _put(
        self, partition: Partition[T], chunk: Sequence[T], waiter: LoopWaiter
    ) -> int:
        accepted = 0
        while not partition.is_closed:
            if waiter.granted:
                accepted += partition.offer_in_turn(waiter, chunk, accepted)
                if accepted == len(chunk):
                    break
            self._lifecycle.notice(partition)
            await waiter.wait()
        return accepted

    async def _put_from_handler(
        self,
        partition: Partition[T],
        chunk: Sequence[T],
        waiter: LoopWaiter,
        wait: RoomWait,
    ) -> int:
        """Put as others do, but wait for no cycle, and lend the permit meanwhile."""
        accepted = 0
        async with wait:
            if waiter.granted < waiter.wants:
                wait.begin()
            while not partition.is_closed:
                if partition.line.may_finish(waiter):
                    # Before the last item is in: a cancellation leaves nothing behind.
                    await wait.over()
                if waiter.granted:
                    accepted += partition.offer_in_turn(waiter, chunk, accepted)
                    if accepted == len(chunk):
                        break
                wait.check()
                # Also behind one who has his slots and waits for a permit to fill them.
                wait.begin()
                self._lifecycle.notice(partition)
                await waiter.wait()
        return accepted
