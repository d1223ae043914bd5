"""Consumers: they wait at a barrier, call a handler, and deal with what it raises."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from inspect import isawaitable
from typing import Generic, TypeVar

from batchqueue_async._results import await_returned
from batchqueue_async._threads.clock import sleep

from .errors import (
    ExceptionHandler,
    Rewind,
    RewindBatch,
    RingError,
    RingHalted,
    halt,
    log_and_continue,
)
from .event_handler import HandlerLike, HandlerMethods, Hook, refuse_generated
from .handler_call import ConsumerSequence, HandlerCall
from .ring_buffer import RingBuffer
from .sequence import INITIAL
from .sequence_barrier import SequenceBarrier

E = TypeVar("E")


class EventProcessor(Generic[E]):
    """One consumer: gives its handler all that is available, as one batch; then waits.

    Its sequence moves once per batch, so consumers after it are woken once per batch.

    Attributes:
        name: That of its task, and in the log.
        on_error: Called when the handler raised; may change while it runs.
        max_batch: Events per batch at most.
        failed: How many calls have raised, hooks included, rewinds not.
        is_to_end: Whether a cancellation of its task is to end it.
    """

    def __init__(
        self,
        ring: RingBuffer[E],
        handler: HandlerLike[E],
        barrier: SequenceBarrier,
        on_error: ExceptionHandler,
    ) -> None:
        self.handler: HandlerMethods[E] = HandlerMethods(handler)
        self.name: str = f"ring consumer {self.handler.name}"
        self.barrier = barrier
        self.sequence: ConsumerSequence = ConsumerSequence(barrier)
        self.on_error = on_error
        self.rewind: Rewind = Rewind()
        self.failed: int = 0
        self.max_batch: int = ring.capacity
        self.is_to_end: Callable[[], bool] = lambda: True
        self._ring = ring
        self._sequencer = ring.sequencer
        self._rewound = 0
        # The last event of the current batch that was passed, when it was looked last.
        self._passed = INITIAL
        self._is_lost = False

    async def run(self) -> None:
        """Consume until the barrier is alerted."""
        await self._call(self.handler.set_sequence_callback, self.sequence)
        try:
            await self._call(self.handler.on_start)
            await self._consume()
            if is_cancelled():
                await self.end_or_go_on()
        finally:
            # A coroutine that is closed along with its loop can't await any more.
            if not isinstance(sys.exception(), GeneratorExit):
                await self._call(self.handler.on_shutdown)

    def take_left(self) -> list[int]:
        """Return the events that it will never pass; on a second call none."""
        if self._is_lost:
            return []
        self._is_lost = True
        return self._sequencer.with_events(self._left_up_to(self._sequencer.claimed))

    def lose(
        self, left: list[int], error: RingError
    ) -> Iterator[Awaitable[object] | object]:
        """Call the exception handler with lost events; yields what it returns."""
        if self.on_error in (log_and_continue, halt):
            return  # They would do nothing but log.
        if self.handler.on_event is not None:
            for sequence in left:
                yield self.on_error(error, sequence, self._ring[sequence])
        elif left:
            yield self.on_error(error, left[0], [self._ring[each] for each in left])

    def _left_up_to(self, last: int) -> Iterable[int]:
        """Return the sequences it would handle next, up to `last`."""
        return range(max(self.sequence.value, self._passed) + 1, last + 1)

    async def _consume(self) -> None:
        """Wait for events and deliver them, again and again."""
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
                if is_cancelled():
                    await self.end_or_go_on()
                await sleep(0)
                has_rested = True
            else:
                last = min(available, first + self.max_batch - 1)
                passed = await self._deliver(first, last)
                sequence.value = max(sequence.value, passed)
                has_rested = False

    async def end_or_go_on(self) -> None:
        """Cancel the consumer again, where a handler has swallowed its cancellation.

        Else it would keep a loop that ends from ending, and tell nobody what it leaves.
        A cancellation of the handler's own making is dropped: before Python 3.13 a
        `TaskGroup` leaves one behind when a task of it fails.
        """
        if not self.is_to_end():
            # Requested, and not raised yet, it would be raised in the next wait.
            with suppress(asyncio.CancelledError):
                await sleep(0)
        if self.is_to_end():
            raise asyncio.CancelledError
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()

    async def _wait_for(self, sequence: int) -> None:
        if is_cancelled():
            await self.end_or_go_on()
        try:
            await self.barrier.wait_for(sequence)
        except RingHalted:
            return
        except TimeoutError:
            await self._call(self.handler.on_timeout, self.sequence.value)

    async def _deliver(self, first: int, last: int) -> int:
        """Hand events over; returns the last one that was passed.

        That is less than `last` if the handler raised: the event that failed, or the
        one before it if the ring is halted; after a rewind it is `first - 1`.
        """
        skipped = self._skipped(first, last) if self._sequencer.abandoned else ()
        size = last - first + 1 - len(skipped)
        if not size:
            return last
        if self.handler.on_batch_start is not None:
            await self._call(self.handler.on_batch_start, size)
        call = HandlerCall(self.sequence)
        try:
            if self.handler.on_event is not None:
                return await self._deliver_events(first, last, skipped)
            return await self._deliver_batches(first, last, skipped)
        finally:
            call.end()

    async def _deliver_events(
        self, first: int, last: int, skipped: Collection[int]
    ) -> int:
        on_event = self.handler.on_event
        assert on_event is not None
        events = self._ring.events(first, last)
        pairs: Iterable[tuple[int, E]] = enumerate(events, first)
        end = last
        if skipped:
            kept = [pair for pair in pairs if pair[0] not in skipped]
            pairs, end = kept, kept[-1][0]
        sequence = first
        event: E | None = None
        task = asyncio.current_task()
        try:
            for sequence, event in pairs:
                result = on_event(event, sequence, sequence == end)
                if result is not None and isawaitable(result):
                    self._passed = sequence - 1
                    if (returned := await result) is not None:
                        await await_returned(returned)
                    if task is not None and task.cancelling() and self.is_to_end():
                        # It has swallowed that: the rest of the batch would hold up
                        # the end. It is cancelled again before its next one.
                        self._passed = sequence
                        return sequence
                elif result is not None:
                    refuse_generated(result)
            self._passed = last
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001
            return await self._passed_after(error, first, sequence, sequence, event)
        except BaseException:
            self._passed = sequence - 1
            raise
        self._rewound = 0
        return last

    async def _deliver_batches(
        self, first: int, last: int, skipped: Collection[int]
    ) -> int:
        on_batch = self.handler.on_batch
        assert on_batch is not None
        for low, high in _runs(first, last, skipped):
            events = self._ring.events(low, high)
            try:
                await _finish(on_batch(events, low))
            except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001
                # A rewind goes back to `low`: another call had the events before it.
                return await self._passed_after(error, low, low, high, events)
            self._passed, self._rewound = high, 0
        return last

    async def _call(self, hook: Hook | None, *args: object) -> None:
        """Call one of the handler's hooks, if it has it."""
        if hook is None:
            return
        at = self.sequence.value
        call = HandlerCall(self.sequence)
        try:
            await _finish(hook(*args))
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001
            await self._fail(_own_error(error), at, None)
        finally:
            call.end()

    async def _passed_after(
        self, error: BaseException, first: int, low: int, high: int, event: object
    ) -> int:
        """Return what is passed now that `low` to `high` of a batch failed."""
        self._passed = low - 1
        try:
            failure = _own_error(error)
        except asyncio.CancelledError:
            # The consumer is cancelled: the events before this one were handled.
            self.sequence.value = max(self.sequence.value, low - 1)
            raise
        if isinstance(failure, RewindBatch) and self.rewind.allows(self._rewound):
            self._rewound += 1
            self._passed = first - 1
            await sleep(self.rewind.pause)
            return first - 1
        self._rewound = 0
        return high if await self._fail(failure, low, event) else low - 1

    async def _fail(self, error: Exception, sequence: int, event: object) -> bool:
        """Ask the exception handler; returns False if the ring is to halt."""
        self.failed += 1
        try:
            await _finish(self.on_error(error, sequence, event))
        except (asyncio.CancelledError, Exception) as fatal:  # noqa: BLE001
            halting = _own_error(fatal)
            if self._sequencer.cause is None:
                at = (
                    f" at event {sequence}, in"
                    if event is not None
                    else " in a hook of"
                )
                self._sequencer.halted_at = f"{at} {self.handler.name}"
            self._ring.halt(halting)
            return False
        return True

    def _skipped(self, first: int, last: int) -> list[int]:
        abandoned = self._sequencer.abandoned
        if last - first < len(abandoned):
            return [each for each in range(first, last + 1) if each in abandoned]
        return sorted(each for each in abandoned if first <= each <= last)


async def _finish(result: object) -> None:
    if result is None:
        return
    if isawaitable(result):
        await await_returned(await result)
    else:
        refuse_generated(result)


def is_cancelled() -> bool:
    """Whether a cancellation of this task was requested, and not dropped."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _runs(first: int, last: int, skipped: Collection[int]) -> Iterator[tuple[int, int]]:
    """Return the stretches of `first` to `last` between the skipped ones."""
    low = first
    for skip in (*skipped, last + 1):
        if low < skip:
            yield low, skip - 1
        low = skip + 1


def _own_error(error: BaseException) -> Exception:
    """Return a handler's error; raise the cancellation of the consumer itself."""
    if isinstance(error, Exception):
        return error
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    failure = RingError("a handler raised CancelledError, and nobody cancelled it")
    failure.__cause__ = error
    return failure
