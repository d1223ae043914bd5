"""Several handlers that share one stream: each event goes to exactly one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Self, TypeVar

from batchqueue_async._threads.clock import sleep
from batchqueue_async._validation import refuse, require_instance

from .errors import (
    RING,
    ExceptionHandler,
    InvalidArgument,
    RingError,
    RingPart,
    log_and_continue,
    require_timeout,
)
from .event_handler import (
    HandlerLike,
    identity_of,
    name_of,
    require_exception_handler,
)
from .event_processor import EventProcessor, is_cancelled
from .lifecycle import ConsumerTasks, leave_block
from .ring_buffer import RingBuffer
from .sequence import INITIAL, Sequence
from .sequence_barrier import SequenceBarrier

E = TypeVar("E")


class WorkProcessor(EventProcessor[E]):
    """Handles one event at a time, of those that its pool assigns.

    Everything up to a worker's own `sequence` was handled, or is some other worker's.
    An idle worker is assigned the next sequence before it is published, and waits for
    it: so its `sequence` holds nobody back.
    """

    assigned: Sequence
    """The highest sequence that the pool has given to any worker."""
    _own: int = INITIAL
    """The last one that it was given itself; none before it has run."""

    def _left_up_to(self, last: int) -> Iterable[int]:
        # Its own event, and all that no worker has: these are taken as assigned, so
        # that the other workers don't count them again.
        first = self.assigned.value + 1
        self.assigned.value = max(self.assigned.value, last)
        mine = self._own
        is_left = max(self.sequence.value, self._passed) < mine <= last
        return [*((mine,) if is_left else ()), *range(first, last + 1)]

    async def _consume(self) -> None:
        while not self.barrier.is_alerted:
            await self._take_one()

    async def _take_one(self) -> None:
        mine = self.assigned.value + 1
        self.assigned.value = self._own = mine
        self.sequence.value = mine - 1
        has_waited = False
        while not self.barrier.is_alerted and self.barrier.available() < mine:
            await self._wait_for(mine)
            has_waited = True
        while not self.barrier.is_alerted:
            if not has_waited:
                # The others take their turns, even if no handler ever awaits.
                if is_cancelled():
                    await self.end_or_go_on()
                await sleep(0)
            if await self._deliver(mine, mine) == mine:
                self.sequence.value = mine
                return
            has_waited = False


class WorkerPool(RingPart, Generic[E]):
    """Gives each event to whichever worker is free; for work that takes its time.

    Most pools are made by `Disruptor.handle_events_with_worker_pool`. One that stands
    alone is used as a context manager, and gates its ring's producers meanwhile.

    Args:
        ring: Where the events come from.
        handlers: One per worker; `end_of_batch` is always true for them.
        barrier: What the workers wait at; by default publications alone.
        on_error: Called when a handler raised.
        shutdown_timeout: Seconds that leaving `async with` takes at most to have
            everything handled (a second more, where handlers have to be cancelled);
            None for no limit.

    Raises:
        InvalidArgument: There are no handlers, or one is given twice, or one is no
            handler; or `barrier` is another ring's; or `on_error` can't be called as it
            is; or the timeout is negative.
        TypeError: `ring` or `barrier` is something else, such as a `Disruptor`; or the
            timeout is no number.
    """

    def __init__(
        self,
        ring: RingBuffer[E],
        *handlers: HandlerLike[E],
        barrier: SequenceBarrier | None = None,
        on_error: ExceptionHandler = log_and_continue,
        shutdown_timeout: float | None = 30.0,
    ) -> None:
        require_timeout("shutdown_timeout", shutdown_timeout)
        self._shutdown_timeout = shutdown_timeout
        require_instance("ring", ring, RingBuffer, RING)
        if barrier is not None:
            rule = "a SequenceBarrier, as ring.new_barrier() makes it, or None"
            require_instance("barrier", barrier, SequenceBarrier, rule)
            if not barrier.is_of(ring.sequencer):
                rule = "one of the pool's own ring: each has its own sequences"
                refuse("barrier", rule, barrier, InvalidArgument)
        require_exception_handler(on_error)
        if not handlers:
            msg = "a worker pool needs at least one handler"
            raise InvalidArgument(msg)
        if len({identity_of(each) for each in handlers}) < len(handlers):
            names = ", ".join(map(name_of, handlers))
            msg = f"a worker pool needs distinct handlers, got {names}"
            raise InvalidArgument(msg)
        self._ring = ring
        self._barrier = ring.new_barrier() if barrier is None else barrier
        self.work_sequence: Sequence = Sequence()
        """The highest assigned sequence; it may not be handled or published yet."""
        self.workers: tuple[WorkProcessor[E], ...] = tuple(
            WorkProcessor(ring, each, self._barrier, on_error) for each in handlers
        )
        for worker in self.workers:
            worker.assigned = self.work_sequence
        self._tasks = ConsumerTasks(ring.sequencer, self._barrier.alert, self._release)

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """Each worker's own sequence: what gates producers and later consumers."""
        return tuple(worker.sequence for worker in self.workers)

    def begin_at(self, sequence: int) -> None:
        """Let the first event be the one after `sequence`."""
        self.work_sequence.value = sequence
        for worker in self.workers:
            worker.sequence.value = sequence

    async def start(self) -> None:
        """Start the workers at the ring's cursor.

        Raises:
            RingError: The pool was started before, or the ring is another loop's.
        """
        if self._tasks.has_started:
            msg = "a worker pool starts once"
            raise RingError(msg)
        self._ring.sequencer.own_loop()
        self.begin_at(self._ring.sequencer.begin_after)
        self._ring.add_gating_sequences(*self.sequences)
        self._tasks.start(self.workers)

    async def drain_and_halt(self, timeout: float | None = 30.0) -> None:
        """Handle what was claimed before the call, then stop; the pool must be started.

        Raises:
            TimeoutError: Not all was handled within `timeout` seconds.
            RingHalted: A handler's error had halted the ring, and no producer has been
                told so far.
            InvalidArgument, TypeError: The timeout is not valid; nothing is stopped.
        """
        require_timeout("timeout", timeout)
        await self._tasks.shut_down(lambda: self.sequences, timeout)

    def _release(self) -> None:
        for sequence in self.sequences:
            self._ring.remove_gating_sequence(sequence)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        await leave_block(self.drain_and_halt(self._shutdown_timeout), error)
