"""Makes consumers from handlers, and puts them into the graph."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from batchqueue_async._wording import shown

from .crew import Consumer, Crew
from .delivery import Delivery, Faults
from .errors import InvalidArgument, RingHalted
from .event_processor import EventProcessor
from .exception_handlers import ExceptionHandler, log_and_continue
from .graph import Graph, Node
from .handlers import HandlerLike, read_handler
from .rewind import Rewind
from .ring_buffer import RingBuffer
from .sequence import Sequence
from .worker_pool import WorkerPool

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Pace:
    """How a handler's batches are cut, and cut again.

    Args:
        max_batch: Events per batch at most; None for all that are available.
        rewind: What `RewindBatch` does.
    """

    max_batch: int | None = None
    rewind: Rewind = field(default_factory=Rewind)

    def __post_init__(self) -> None:
        if self.max_batch is not None and self.max_batch < 1:
            msg = f"max_batch must be >= 1 or None, got {shown(self.max_batch)}"
            raise InvalidArgument(msg)


class Consumers(Generic[E]):
    """The consumers of one ring: not running at first, then each as it is added."""

    def __init__(self, ring: RingBuffer[E]) -> None:
        self.graph = Graph(ring.sequencer)
        self.crew = Crew(ring.sequencer)
        self._ring = ring
        self._on_error: ExceptionHandler = log_and_continue
        self._has_own: set[int] = set()

    def add(
        self, handlers: Seq[HandlerLike[E]], after: Seq[Node], pace: Pace
    ) -> tuple[Node, ...]:
        """Add handlers side by side, each after all of `after`."""
        self._check(handlers, after)
        read = [read_handler(handler) for handler in handlers]
        nodes = []
        for handler, handling in zip(handlers, read, strict=True):
            sequence = Sequence(self._ring.sequencer.begin_after)
            faults = Faults(self._on_error, pace.rewind)
            processor = EventProcessor(
                self._ring.new_barrier(*_sequences(after)),
                Delivery(self._ring, handling, faults, sequence),
                sequence,
                pace.max_batch or self._ring.capacity,
            )
            nodes.append(Node(handling.name, (handler,), (processor,), tuple(after)))
        self._place(nodes)
        return tuple(nodes)

    def add_pool(self, handlers: Seq[HandlerLike[E]], after: Seq[Node]) -> Node:
        """Add handlers that share one stream, after all of `after`."""
        self._check(handlers, after)
        barrier = self._ring.new_barrier(*_sequences(after))
        pool = WorkerPool(
            self._ring, *handlers, barrier=barrier, on_error=self._on_error
        )
        pool.begin_at(self._ring.sequencer.begin_after)
        name = pool.workers[0].delivery.handling.name
        node = Node(name, tuple(handlers), pool.workers, tuple(after))
        self._place([node])
        return node

    def start(self) -> None:
        """Run everything that was added, and what will be."""
        self.crew.start()
        for node in self.graph.nodes:
            self._run(node.consumers)

    def handle_exceptions_with(
        self, on_error: ExceptionHandler, handlers: Seq[object]
    ) -> None:
        """Set it for some handlers, or for all that have none of their own."""
        if handlers:
            for handler in handlers:
                node = self.graph.node_of(handler)
                faults = node.consumers[node.index_of(handler)].delivery.faults
                faults.on_error = on_error
                self._has_own.add(id(faults))
            return
        self._on_error = on_error
        for node in self.graph.nodes:
            for consumer in node.consumers:
                if id(consumer.delivery.faults) not in self._has_own:
                    consumer.delivery.faults.on_error = on_error

    def _check(self, handlers: Seq[HandlerLike[E]], after: Seq[Node]) -> None:
        if self._ring.sequencer.is_closed:
            msg = "the ring is closed: handlers come too late"
            raise RingHalted(msg)
        self.graph.check_new(handlers, after)

    def _place(self, nodes: Seq[Node]) -> None:
        for node in nodes:
            self.graph.add(node, self._ring.sequencer.begin_after)
        if self.crew.has_started:
            for node in nodes:
                self._run(node.consumers)

    def _run(self, consumers: Seq[Consumer]) -> None:
        for consumer in consumers:
            self.crew.add(consumer)


def _sequences(nodes: Seq[Node]) -> tuple[Sequence, ...]:
    return tuple(sequence for node in nodes for sequence in node.sequences)
