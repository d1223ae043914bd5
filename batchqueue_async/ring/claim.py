"""What `RingBuffer.claim` returns: awaited, or the head of an `async with` block."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from .errors import InvalidArgument
from .sequencer import Sequencer

E = TypeVar("E")


class Claim(Coroutine[Any, Any, int], Generic[E]):
    """One claim, as a coroutine (a task may run it) or as a block that fills a slot.

    Awaited, it returns the highest of the claimed sequences. As a context manager it
    claims one sequence and gives its event; the sequence is published at the end or, if
    the block raises, abandoned. Before either, nothing is claimed.

    Attributes:
        sequence: The claimed sequence, inside of the block.
    """

    __name__ = "claim"  # For the `repr` of tasks.
    __slots__ = ("_events", "_n", "_run", "_sequencer", "sequence")

    sequence: int
    _run: Generator[Any, Any, int]

    def __init__(self, sequencer: Sequencer, events: list[E], n: int) -> None:
        self._sequencer = sequencer
        self._events = events
        self._n = n

    def __await__(self) -> Generator[Any, Any, int]:
        # What `Sequencer.claim` does, without a coroutine for it.
        sequencer, n = self._sequencer, self._n
        high = sequencer.claimed + n
        if n > 0 and high <= sequencer.limit:
            sequencer.claimed = high
            return high
        granted = sequencer.grant(n)
        if granted is not None:
            return granted
        return (yield from sequencer.claim_in_line(n).__await__())

    def send(self, value: Any) -> Any:  # noqa: ANN401
        """Run on, as a coroutine does."""
        return self._running().send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Raise an error where it waits, as a coroutine does."""
        return self._running().throw(*error)

    def close(self) -> None:
        """Give up, as a coroutine does: nothing is claimed."""
        self._running().close()

    def _running(self) -> Generator[Any, Any, int]:
        if not hasattr(self, "_run"):
            self._run = self.__await__()
        return self._run

    async def __aenter__(self) -> E:
        if self._n != 1:
            msg = f"a block fills one event, not {self._n}: await the claim instead"
            raise InvalidArgument(msg)
        self.sequence = await self
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
