"""`async with ring.slot() as event`: one claim, published at the end of the block."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, TypeVar

from .sequencer import Sequencer

E = TypeVar("E")


class Slot(Generic[E]):
    """Claims one sequence, and publishes it or, if the block raises, abandons it.

    Attributes:
        sequence: The claimed sequence, inside of the block.
    """

    __slots__ = ("_events", "_sequencer", "sequence")

    def __init__(self, sequencer: Sequencer, events: list[E]) -> None:
        self.sequence = -1
        self._sequencer = sequencer
        self._events = events

    async def __aenter__(self) -> E:
        self.sequence = await self._sequencer.claim()
        return self._events[self.sequence & (len(self._events) - 1)]

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._sequencer.publish(self.sequence)
        else:
            self._sequencer.abandon(self.sequence, self.sequence)
