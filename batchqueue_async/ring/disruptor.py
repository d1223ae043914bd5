"""A ring with a graph of consumers: built, run, looked at and shut down as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from batchqueue_async._validation import require_instance

from .consumer_repository import ConsumerRepository, Node
from .errors import (
    ExceptionHandler,
    InvalidArgument,
    Rewind,
    RingError,
    RingHalted,
    RingPart,
    require_power_of_two,
    require_timeout,
)
from .event_handler import HandlerLike
from .lifecycle import leave_block, say_left
from .ring_buffer import ProducerType, RingBuffer
from .sequence_barrier import WaitStrategy

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One handler, or one pool of workers.

    Attributes:
        name: What `describe` calls it.
        sequence: The last event that it has passed.
        lag: How many claimed events it has not passed.
        failed: How often its handlers raised, hooks included, rewinds not.
        is_gating: Whether producers wait for it.
    """

    name: str
    sequence: int
    lag: int
    failed: int
    is_gating: bool


@dataclass(frozen=True, slots=True)
class RingStats:
    """A frozen snapshot.

    Attributes:
        capacity: How many events the ring holds.
        cursor: The highest sequence published (one producer) or claimed (many).
        claimed: The highest claimed sequence.
        published: The highest sequence up to which all are published.
        remaining_capacity: How many sequences could be claimed if nobody waited.
        claims_waited: How many claims have had to wait for room so far.
        claims_waiting: How many wait now.
        consumers: In the order in which they were added.
    """

    capacity: int
    cursor: int
    claimed: int
    published: int
    remaining_capacity: int
    claims_waited: int
    claims_waiting: int
    consumers: tuple[ConsumerStats, ...]


class HandlerGroup(RingPart, Generic[E]):
    """Some handlers of a ring: whatever is added here comes after all of them."""

    def __init__(
        self, consumers: ConsumerRepository[E], nodes: tuple[Node, ...]
    ) -> None:
        self._consumers = consumers
        self._nodes = nodes

    def handle_events_with(
        self,
        *handlers: HandlerLike[E],
        max_batch: int | None = None,
        rewind: Rewind | None = None,
    ) -> HandlerGroup[E]:
        """Add handlers that get each event after all of this group have passed it.

        Handlers of the disruptor itself get it as soon as it is published.

        Args:
            handlers: They work side by side. They get what comes after the ring's
                cursor: nothing that was published before they were added.
            max_batch: Events per batch at most.
            rewind: What `RewindBatch` does; by default it rewinds, without a limit.

        Raises:
            RingError: A handler is used twice, or the graph would have a cycle; or it
                runs, and another loop does here.
            InvalidArgument, TypeError: One is no handler, or there is none; or another
                argument is not valid.
            RingHalted: The ring was shut down or halted.
        """
        nodes = self._consumers.add(handlers, self._nodes, max_batch, rewind)
        return HandlerGroup(self._consumers, nodes)

    then = handle_events_with
    """The same; it reads better in a chain."""

    def handle_events_with_worker_pool(
        self, *handlers: HandlerLike[E]
    ) -> HandlerGroup[E]:
        """Add handlers that share the events: each goes to exactly one of them.

        Raises:
            RingError: A handler is used twice, or the graph would have a cycle.
            InvalidArgument: One is no handler, or there is none.
            RingHalted: The ring was shut down or halted.
        """
        nodes = self._consumers.add_pool(handlers, self._nodes)
        return HandlerGroup(self._consumers, nodes)

    def and_(self, other: HandlerGroup[E]) -> HandlerGroup[E]:
        """Return a group of this one's handlers and the other's.

        Raises:
            RingError: The other group is of another ring.
            TypeError: It is no group, but a handler for instance.
        """
        rule = "a group, as handle_events_with returns it"
        require_instance("other", other, HandlerGroup, rule)
        if other._consumers is not self._consumers:
            msg = "groups of two rings cannot be joined: each has its own sequences"
            raise RingError(msg)
        nodes = dict.fromkeys((*self._nodes, *other._nodes))
        return HandlerGroup(self._consumers, tuple(nodes))


class Disruptor(HandlerGroup[E]):
    """One stream of events that many handlers see, each all of it, in a given order.

    Handlers are declared first, and what follows them::

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
        TypeError: The timeout is no number, or another argument is something else.
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
        require_power_of_two("size", size)
        require_timeout("shutdown_timeout", shutdown_timeout)
        self._shutdown_timeout = shutdown_timeout
        self.ring: RingBuffer[E] = RingBuffer(
            factory, size, producer=producer, wait=wait
        )
        """Where producers publish; what is published before the start is handled, by
        those handlers that were there by then."""
        self._producer = producer
        super().__init__(ConsumerRepository(self.ring), ())

    # --- the graph: the methods of HandlerGroup add the handlers that come first

    def after(self, *handlers: HandlerLike[E]) -> HandlerGroup[E]:
        """Return a group of handlers already in the graph, to add others after them.

        Raises:
            InvalidArgument: One of them is not, or there is none.
        """
        if not handlers:  # what is added to no group comes first, not after anything
            msg = "at least one handler is needed"
            raise InvalidArgument(msg)
        nodes = dict.fromkeys(self._consumers.find(each)[0] for each in handlers)
        return HandlerGroup(self._consumers, tuple(nodes))

    def handle_exceptions_with(
        self, on_error: ExceptionHandler, *handlers: HandlerLike[E]
    ) -> None:
        """Call `on_error(error, sequence, event)` when a handler raises.

        If it returns, the event counts as passed; if it raises, the ring halts.

        Args:
            on_error: `log_and_continue` (the default), `halt`, or your own.
            handlers: Whose errors; by default all that have no handler of their own.

        Raises:
            InvalidArgument: It can't be called like that, or a handler is none of this
                ring; nothing is changed.
        """
        self._consumers.handle_exceptions_with(on_error, handlers)

    def describe(self) -> str:
        """Draw the graph: as text, then as a Mermaid diagram."""
        wait = type(self.ring.sequencer.wait_strategy).__name__
        kind = f"{self._producer.name} producer, {wait}"
        title = f"ring of {self.ring.capacity}, {kind}"
        nodes = self._consumers.nodes
        return (
            f"{_as_text(title, nodes)}\n\n```mermaid\n{_as_mermaid(title, nodes)}\n```"
        )

    def stats(self) -> RingStats:
        """Return what the ring and its consumers look like now."""
        sequencer = self.ring.sequencer
        return RingStats(
            capacity=self.ring.capacity,
            cursor=self.ring.cursor,
            claimed=sequencer.claimed,
            published=sequencer.published,
            remaining_capacity=self.ring.remaining_capacity(),
            claims_waited=sequencer.claims_waited,
            claims_waiting=sequencer.claims_waiting,
            consumers=tuple(
                ConsumerStats(
                    name=node.name,
                    sequence=node.sequence,
                    lag=sequencer.claimed - node.sequence,
                    failed=sum(each.failed for each in node.consumers),
                    is_gating=node.is_gating,
                )
                for node in self._consumers.nodes
            ),
        )

    # --- the life of it

    async def start(self) -> RingBuffer[E]:
        """Start the consumers, on the running loop; returns the ring.

        Raises:
            RingError: It was started before, or the ring is another loop's.
            RingHalted: It was shut down or halted before.
        """
        if self._consumers.tasks.has_started:
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
        wait for the end. If the call is cancelled, the shutdown goes on in the
        background. Before the start nothing is handled: published events are logged,
        and exception handlers are told.

        Raises:
            TimeoutError: Events were left after `timeout` seconds (None: no limit).
                What ran was cancelled; no task survives, except for a handler that
                can't be stopped, which is logged.
            RingHalted: A handler's error had halted the ring, and no producer has been
                told so far.
            InvalidArgument, TypeError: The timeout is not valid; nothing is closed.
        """
        require_timeout("timeout", timeout)
        tasks = self._consumers.tasks
        if not tasks.has_started:
            await self._end_unstarted()
            return
        self.ring.sequencer.close()
        await tasks.shut_down(lambda: self._consumers.sequences, timeout)

    async def _end_unstarted(self) -> None:
        self.ring.halt()
        for consumer in self._consumers.consumers:
            reason = f"{consumer.name} was never started"
            await self._consumers.tasks.tell_left(consumer, reason)

    def halt(self) -> None:
        """Stop now: consumers end after the batch they are at; claims are refused.

        Each consumer logs how many events are left to it, also before the start.
        """
        self.ring.halt()
        if not self._consumers.tasks.has_started:
            for consumer in self._consumers.consumers:
                say_left(consumer, f"{consumer.name} was halted before its start")

    async def __aenter__(self) -> RingBuffer[E]:
        return await self.start()

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        await leave_block(self.shutdown(self._shutdown_timeout), error)


def _as_text(title: str, nodes: Sequence[Node]) -> str:
    lines, depths = [title], dict[int, int]()
    for node in nodes:  # Each comes after those it depends on.
        depth = 1 + max((depths[id(each)] for each in node.after), default=0)
        depths[id(node)] = depth
        text = "    " * depth + _label(node)
        if node.after:
            text += f" (after {', '.join(each.name for each in node.after)})"
        if node.is_gating:
            text += " [gates producers]"
        lines.append(text)
    return "\n".join(lines)


def _as_mermaid(title: str, nodes: Sequence[Node]) -> str:
    ids = {id(node): f"n{number}" for number, node in enumerate(nodes, 1)}
    lines = ["flowchart LR", f"    ring[({_quoted(title)})]"]
    lines += [f"    {ids[id(node)]}[{_quoted(_label(node))}]" for node in nodes]
    for node in nodes:
        sources = [ids[id(each)] for each in node.after] or ["ring"]
        lines += [f"    {source} --> {ids[id(node)]}" for source in sources]
    lines += [f"    {ids[id(node)]} -.-> ring" for node in nodes if node.is_gating]
    return "\n".join(lines)


def _label(node: Node) -> str:
    workers = len(node.consumers)
    return node.name if workers == 1 else f"{node.name}: {workers} workers"


def _quoted(text: str) -> str:
    # Mermaid would take `<lambda>` for markup.
    for character, entity in (('"', "quot"), ("<", "lt"), (">", "gt")):
        text = text.replace(character, f"#{entity};")
    return f'"{text}"'
