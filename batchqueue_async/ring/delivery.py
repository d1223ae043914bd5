"""Gives available events to one handler, and deals with what it raises."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Generic, TypeVar

from .duty import Duty
from .errors import RewindBatch, RingError
from .exception_handlers import ExceptionHandler, log_and_continue
from .handlers import Handling, Hook
from .rewind import Rewind
from .ring_buffer import RingBuffer
from .sequence import Sequence

E = TypeVar("E")


@dataclass(slots=True)
class Faults:
    """What one consumer does about errors; may change while it runs."""

    on_error: ExceptionHandler = log_and_continue
    rewind: Rewind = field(default_factory=Rewind)
    failed: int = 0
    """How many calls have raised, hooks included, rewinds not."""


class Delivery(Generic[E]):
    """One handler's deliveries: each call passes events on, or rewinds, or halts."""

    __slots__ = ("_rewound", "_ring", "_sequencer", "faults", "handling", "sequence")

    def __init__(
        self,
        ring: RingBuffer[E],
        handling: Handling[E],
        faults: Faults,
        sequence: Sequence,
    ) -> None:
        self.handling = handling
        self.faults = faults
        self.sequence = sequence
        """How far its consumer has come."""
        self._ring = ring
        self._sequencer = ring.sequencer
        self._rewound = 0

    async def deliver(self, first: int, last: int) -> int:
        """Hand events over; returns the last one that was passed.

        That is less than `last` if the handler raised: the event that failed; or
        `first - 1` after a rewind; or the one before it, and the ring is halted.
        """
        skipped = self._skipped(first, last) if self._sequencer.abandoned else ()
        size = last - first + 1 - len(skipped)
        if not size:
            return last
        if self.handling.on_batch_start is not None:
            await self.call(self.handling.on_batch_start, first - 1, size)
        duty = Duty(self._sequencer, self.sequence)
        try:
            if self.handling.on_event is not None:
                return await self._deliver_events(first, last, skipped)
            return await self._deliver_batches(first, last, skipped)
        finally:
            duty.is_over = True

    async def call(self, hook: Hook | None, at: int, *args: object) -> None:
        """Call one of the handler's hooks, if it has it."""
        if hook is None:
            return
        duty = Duty(self._sequencer, self.sequence)
        try:
            await _finish(hook(*args))
        except asyncio.CancelledError as error:
            await self._fail(_own_failure(error), at, None)
        except Exception as error:  # noqa: BLE001
            await self._fail(error, at, None)
        finally:
            duty.is_over = True

    async def _deliver_events(
        self, first: int, last: int, skipped: Collection[int]
    ) -> int:
        on_event = self.handling.on_event
        assert on_event is not None
        pairs: Iterable[tuple[int, E]] = enumerate(
            self._ring.events(first, last), first
        )
        end = last
        if skipped:
            kept = [pair for pair in pairs if pair[0] not in skipped]
            pairs, end = kept, kept[-1][0]
        sequence = first
        event: E | None = None
        try:
            for sequence, event in pairs:
                result = on_event(event, sequence, sequence == end)
                if result is not None and isawaitable(result):
                    await result
        except asyncio.CancelledError as error:
            failure = _own_failure(error)
            return await self._after(failure, first, sequence, sequence, event)
        except Exception as error:  # noqa: BLE001
            return await self._after(error, first, sequence, sequence, event)
        self._rewound = 0
        return last

    async def _deliver_batches(
        self, first: int, last: int, skipped: Collection[int]
    ) -> int:
        on_batch = self.handling.on_batch
        assert on_batch is not None
        for low, high in _runs(first, last, skipped):
            events = self._ring.events(low, high)
            try:
                await _finish(on_batch(events, low))
            except asyncio.CancelledError as error:
                failure = _own_failure(error)
                return await self._after(failure, first, low, high, events)
            except Exception as error:  # noqa: BLE001
                return await self._after(error, first, low, high, events)
        self._rewound = 0
        return last

    async def _after(
        self, error: Exception, first: int, low: int, high: int, event: object
    ) -> int:
        """Return what is passed now that `low` to `high` failed."""
        rewind = self.faults.rewind
        if isinstance(error, RewindBatch) and rewind.allows(self._rewound):
            self._rewound += 1
            await asyncio.sleep(rewind.pause)
            return first - 1
        self._rewound = 0
        return high if await self._fail(error, low, event) else low - 1

    async def _fail(self, error: Exception, sequence: int, event: object) -> bool:
        """Ask the exception handler; returns False if the ring is to halt."""
        self.faults.failed += 1
        try:
            await _finish(self.faults.on_error(error, sequence, event))
        except asyncio.CancelledError as cancelled:
            self._ring.halt(_own_failure(cancelled))
        except Exception as fatal:  # noqa: BLE001
            self._ring.halt(fatal)
        else:
            return True
        return False

    def _skipped(self, first: int, last: int) -> list[int]:
        abandoned = self._sequencer.abandoned
        return sorted(each for each in abandoned if first <= each <= last)


async def _finish(result: object) -> None:
    if result is not None and isawaitable(result):
        await result


def _runs(first: int, last: int, skipped: Collection[int]) -> Iterator[tuple[int, int]]:
    """Return the stretches of `first` to `last` between the skipped ones."""
    low = first
    for skip in (*skipped, last + 1):
        if low < skip:
            yield low, skip - 1
        low = skip + 1


def _own_failure(error: asyncio.CancelledError) -> RingError:
    """Return what to treat it as; raise it if the consumer itself is cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    failure = RingError("a handler raised CancelledError, and nobody cancelled it")
    failure.__cause__ = error
    return failure
