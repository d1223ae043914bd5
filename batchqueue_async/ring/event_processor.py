"""One consumer that sees every event: wait, hand over what is there, move on."""

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
class EventProcessor(Generic[E]):
    """Gives one handler everything that is available, as one batch; then waits.

    Its sequence moves once per batch, so those behind it look once per batch.
    """

    barrier: SequenceBarrier
    delivery: Delivery[E]
    sequence: Sequence
    max_batch: int

    async def run(self) -> None:
        """Consume until the barrier is alerted."""
        call, handling = self.delivery.call, self.delivery.handling
        await call(handling.set_sequence_callback, self.sequence.value, self.sequence)
        try:
            await call(handling.on_start, self.sequence.value)
            await self._consume()
        finally:
            await call(handling.on_shutdown, self.sequence.value)

    async def _consume(self) -> None:
        barrier, sequence = self.barrier, self.sequence
        has_rested = True
        while not barrier.is_alerted:
            first = sequence.value + 1
            available = barrier.available()
            if available < first:
                await self._wait_for(first)
                has_rested = True
            elif not has_rested:
                # Handlers that never await must not keep the loop to themselves.
                await asyncio.sleep(0)
                has_rested = True
            else:
                last = min(available, first + self.max_batch - 1)
                passed = await self.delivery.deliver(first, last)
                sequence.value = max(sequence.value, passed)
                has_rested = False

    async def _wait_for(self, first: int) -> None:
        try:
            await self.barrier.wait_for(first)
        except RingHalted:
            return
        except TimeoutError:
            at = self.sequence.value
            await self.delivery.call(self.delivery.handling.on_timeout, at, at)
