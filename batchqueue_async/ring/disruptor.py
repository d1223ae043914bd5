"""A ring with a graph of consumers: built, run and shut down as one."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from batchqueue_async._shielding import Shielded

from .closing import Closing, end_block
from .consumers import Consumers
from .describe import describe
from .errors import RingError, RingHalted
from .exception_handlers import ExceptionHandler
from .handler_group import HandlerGroup
from .handlers import HandlerLike
from .producer_type import ProducerType
from .rewind import Rewind
from .ring_buffer import RingBuffer
from .stats import RingStats, snapshot
from .timeouts import require_timeout
from .wait_strategies import WaitStrategy

E = TypeVar("E")


class Disruptor(Generic[E]):
    """One stream of events that many handlers see, each all of it, in a given order.

        disruptor = Disruptor(Trade, 1024)
        disruptor.handle_events_with(journal, replicate).then(apply)
        async with disruptor as ring:
            await ring.publish_event(fill, price)

    Handlers get whatever is available as one batch. A producer waits when the slowest
    of the last handlers is a whole ring behind. A handler that raises is logged, and
    the event counts as passed, unless `handle_exceptions_with` says otherwise.

    Args:
        factory: Makes one event; called `size` times, here and never again.
        size: How many events the ring holds; a power of two.
        producer: One producer or many.
        wait: How consumers wait; by default `BlockingWait`.
        shutdown_timeout: Seconds that leaving `async with` takes at most to have
            everything handled (a second more, where handlers have to be cancelled);
            None for no limit.

    Raises:
        InvalidArgument: The size is no power of two, or the timeout is negative.
        TypeError: The timeout is no number.
    """

    def __init__(
        self,
        factory: Callable[[], E],
        size: int,
        producer: ProducerType = ProducerType.MULTI,
        wait: WaitStrategy | None = None,
        *,
        shutdown_timeout: float | None = 30.0,
    ) -> None:
        require_timeout("shutdown_timeout", shutdown_timeout)
        self._shutdown_timeout = shutdown_timeout
        self.ring = RingBuffer(factory, size, producer=producer, wait=wait)
        """Where producers publish; events published before the start are handled."""
        self._producer = producer
        self._consumers = Consumers(self.ring)
        self._first = HandlerGroup(self._consumers, ())
        self._closing: Closing | None = None

    # --- the graph

    def handle_events_with(
        self,
        *handlers: HandlerLike[E],
        max_batch: int | None = None,
        rewind: Rewind | None = None,
    ) -> HandlerGroup[E]:
        """Add handlers that get each event as soon as it is published.

        See `HandlerGroup.handle_events_with` for the arguments and errors.
        """
        return self._first.handle_events_with(
            *handlers, max_batch=max_batch, rewind=rewind
        )

    def handle_events_with_worker_pool(
        self, *handlers: HandlerLike[E]
    ) -> HandlerGroup[E]:
        """Add handlers that share the events: each goes to exactly one of them."""
        return self._first.handle_events_with_worker_pool(*handlers)

    def after(self, *handlers: HandlerLike[E]) -> HandlerGroup[E]:
        """Return the group of handlers that are in the graph, to go on from there.

        Raises:
            InvalidArgument: One of them is not.
        """
        nodes = (self._consumers.graph.node_of(handler) for handler in handlers)
        return HandlerGroup(self._consumers, tuple(dict.fromkeys(nodes)))

    def handle_exceptions_with(
        self, on_error: ExceptionHandler, *handlers: HandlerLike[E]
    ) -> None:
        """Call `on_error(error, sequence, event)` when a handler raises.

        If it returns, the event counts as passed; if it raises, the ring halts.

        Args:
            on_error: `log_and_continue` (the default), `halt`, or your own.
            handlers: Whose errors; by default all that have no handler of their own.
        """
        self._consumers.handle_exceptions_with(on_error, handlers)

    def describe(self) -> str:
        """Draw the graph: as text, then as a Mermaid diagram."""
        wait = type(self.ring.sequencer.wait_strategy).__name__
        kind = f"{self._producer.name} producer, {wait}"
        title = f"ring of {self.ring.capacity}, {kind}"
        return describe(title, self._consumers.graph.nodes)

    def stats(self) -> RingStats:
        """Return what the ring and its consumers look like now."""
        return snapshot(self.ring, self._consumers.graph.nodes)

    # --- the life of it

    async def start(self) -> RingBuffer[E]:
        """Start the consumers, on the running loop; returns the ring.

        Raises:
            RingError: It was started before.
            RingHalted: It was shut down or halted before.
        """
        if self._consumers.crew.has_started:
            msg = "a disruptor starts once"
            raise RingError(msg)
        if self.ring.sequencer.is_closed:
            msg = "the ring is closed"
            raise RingHalted(msg)
        self._consumers.start()
        return self.ring

    async def shutdown(self, timeout: float | None = 30.0) -> None:
        """Take no more claims, handle everything that was claimed, stop the consumers.

        Whoever waits with a claim gets `RingHalted`. May be called again, and from
        several tasks: the earliest deadline counts. A handler that calls it does not
        wait for the end. Cancelled, it goes on in the background.

        Raises:
            TimeoutError: Events were left after `timeout` seconds (None: no limit).
                What ran was cancelled; no task survives, except for a handler that
                can't be stopped, which is logged.
            RingHalted: A handler's error had halted the ring, and no producer has got
                to know so far.
            InvalidArgument, TypeError: The timeout is none; nothing is closed.
        """
        require_timeout("timeout", timeout)
        sequencer = self.ring.sequencer
        if not self._consumers.crew.has_started:
            self.halt()
            return
        if self._closing is None:
            sequencer.close()
            self._closing = Closing(self._consumers.crew, sequencer, sequencer.halt)
        await self._closing.run(self._consumers.graph.sequences, timeout)

    def halt(self) -> None:
        """Stop now: consumers end after the batch they are at; claims are refused."""
        self.ring.halt()

    async def __aenter__(self) -> RingBuffer[E]:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Cancel scopes of anyio do not cut it short.
        with Shielded():
            await end_block(self.shutdown(self._shutdown_timeout), error)
