"""Several handlers that share one stream: each event goes to exactly one of them."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Self, TypeVar

from batchqueue_async._shielding import Shielded

from .barrier import SequenceBarrier
from .closing import Closing, end_block
from .crew import Crew
from .delivery import Delivery, Faults
from .errors import InvalidArgument, RingError
from .exception_handlers import ExceptionHandler, log_and_continue
from .handlers import HandlerLike, identity_of, name_of, read_handler
from .ring_buffer import RingBuffer
from .sequence import Sequence
from .timeouts import require_timeout
from .worker import Worker

E = TypeVar("E")


class WorkerPool(Generic[E]):
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
        InvalidArgument: There are no handlers, or one is given twice, or something
            else is given for one; or the timeout is negative.
        TypeError: The timeout is no number.
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
        if not handlers:
            msg = "a worker pool needs at least one handler"
            raise InvalidArgument(msg)
        if len({identity_of(each) for each in handlers}) < len(handlers):
            names = ", ".join(map(name_of, handlers))
            msg = f"a worker pool needs distinct handlers, got {names}"
            raise InvalidArgument(msg)
        self._ring = ring
        self._barrier = ring.new_barrier() if barrier is None else barrier
        self.work_sequence = Sequence()
        """The highest sequence that was assigned: not done, and perhaps not there."""
        self.workers = tuple(self._hire(each, Faults(on_error)) for each in handlers)
        self._crew = Crew(ring.sequencer)
        self._closing: Closing | None = None

    def _hire(self, handler: HandlerLike[E], faults: Faults) -> Worker[E]:
        sequence = Sequence()
        delivery = Delivery(self._ring, read_handler(handler), faults, sequence)
        return Worker(self._barrier, delivery, sequence, self.work_sequence)

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
            RingError: The pool was started before.
        """
        if self._crew.has_started:
            msg = "a worker pool starts once"
            raise RingError(msg)
        self.begin_at(self._ring.sequencer.begin_after)
        self._ring.add_gating_sequences(*self.sequences)
        self._crew.start()
        for worker in self.workers:
            self._crew.add(worker)

    async def drain_and_halt(self, timeout: float | None = 30.0) -> None:
        """Handle what was claimed before the call, then stop; once started.

        Raises:
            TimeoutError: Not all was handled within `timeout` seconds.
            RingHalted: A handler's error had halted the ring, and no producer has got
                to know so far.
            InvalidArgument, TypeError: The timeout is none; nothing is stopped.
        """
        require_timeout("timeout", timeout)
        if self._closing is None:
            self._closing = Closing(
                self._crew, self._ring.sequencer, self._barrier.alert, self._release
            )
        await self._closing.run(self.sequences, timeout)

    def _release(self) -> None:
        for sequence in self.sequences:
            self._ring.remove_gating_sequence(sequence)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Cancel scopes of anyio do not cut it short.
        with Shielded():
            await end_block(self.drain_and_halt(self._shutdown_timeout), error)
