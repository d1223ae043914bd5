"""One worker of a pool: takes the next event that no other has taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from .barrier import SequenceBarrier
from .delivery import Delivery
from .errors import RingHalted
from .sequence import Sequence

E = TypeVar("E")


@dataclass(slots=True)
class Worker(Generic[E]):
    """Handles one event at a time, of those that its pool assigns.

    `assigned` is the pool's: the highest sequence that was given to any worker. What is
    done is each worker's own `sequence`: everything up to it was handled, or is some
    other worker's. An idle worker has its next sequence assigned already, and waits
    for it: so it holds nobody back.
    """

    barrier: SequenceBarrier
    delivery: Delivery[E]
    sequence: Sequence
    assigned: Sequence

    async def run(self) -> None:
        """Consume until the barrier is alerted."""
        call, handling = self.delivery.call, self.delivery.handling
        await call(handling.set_sequence_callback, self.sequence.value, self.sequence)
        try:
            await call(handling.on_start, self.sequence.value)
            while not self.barrier.is_alerted:
                await self._take_one()
        finally:
            await call(handling.on_shutdown, self.sequence.value)

    async def _take_one(self) -> None:
        mine = self.assigned.value + 1
        self.assigned.value = mine
        self.sequence.value = mine - 1
        has_waited = await self._wait_for(mine)
        while not self.barrier.is_alerted:
            if not has_waited:
                # The others take their turns, even if no handler ever awaits.
                await asyncio.sleep(0)
            if await self.delivery.deliver(mine, mine) == mine:
                self.sequence.value = mine
                return
            has_waited = False

    async def _wait_for(self, mine: int) -> bool:
        has_waited = False
        while not self.barrier.is_alerted and self.barrier.available() < mine:
            has_waited = True
            try:
                await self.barrier.wait_for(mine)
            except RingHalted:
                break
            except TimeoutError:
                at = self.sequence.value
                await self.delivery.call(self.delivery.handling.on_timeout, at, at)
        return has_waited
