"""Which consumers a ring has, after which others each comes, and which gate producers.

Invariants:
* A node comes after nodes that were there before it, and a handler is in one node at
  most: so there is no cycle.
* The lowest gating sequence is never ahead of any consumer. Gating are the last nodes'
  sequences, and those of a node that is behind the start of a node after it.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from batchqueue_async._validation import require_instance

from .errors import (
    ExceptionHandler,
    InvalidArgument,
    Rewind,
    RingError,
    RingHalted,
    log_and_continue,
    require_count,
)
from .event_handler import (
    HandlerLike,
    identity_of,
    name_of,
    require_exception_handler,
)
from .event_processor import EventProcessor
from .handler_call import ConsumerSequence
from .lifecycle import ConsumerTasks
from .ring_buffer import RingBuffer
from .sequence import Sequence
from .worker_pool import WorkerPool

E = TypeVar("E")


@dataclass(eq=False, slots=True)
class Node:
    """One handler, or one pool of them, with what it comes after."""

    name: str
    consumers: tuple[EventProcessor[Any], ...]
    after: tuple[Node, ...]
    is_gating: bool = True

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """How far each of its consumers has come."""
        return tuple(consumer.sequence for consumer in self.consumers)

    @property
    def sequence(self) -> int:
        """The last event that the node has passed."""
        return min(sequence.value for sequence in self.sequences)


class ConsumerRepository(Generic[E]):
    """The consumers of one ring; those added after its start run at once."""

    def __init__(self, ring: RingBuffer[E]) -> None:
        self.nodes: list[Node] = []
        self.tasks: ConsumerTasks = ConsumerTasks(ring.sequencer, ring.halt)
        self._ring = ring
        self._by_handler: dict[object, tuple[Node, EventProcessor[Any]]] = {}
        self._on_error: ExceptionHandler = log_and_continue
        # Consumers that have an exception handler of their own.
        self._has_own: set[EventProcessor[E]] = set()

    @property
    def consumers(self) -> list[EventProcessor[Any]]:
        """All of them, in the order in which they were added."""
        return [each for node in self.nodes for each in node.consumers]

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """The sequences of all consumers, and of worker pools beside them."""
        gating = self._ring.sequencer.gating
        beside = (each for each in gating if isinstance(each, ConsumerSequence))
        return (*_sequences(self.nodes), *beside)

    def find(self, handler: object) -> tuple[Node, EventProcessor[Any]]:
        """Return the handler's node, and the consumer that calls the handler."""
        try:
            return self._by_handler[identity_of(handler)]
        except KeyError:
            msg = f"{name_of(handler)} is no handler of this ring"
            raise InvalidArgument(msg) from None

    def add(
        self,
        handlers: Seq[HandlerLike[E]],
        after: tuple[Node, ...],
        max_batch: int | None,
        rewind: Rewind | None,
    ) -> tuple[Node, ...]:
        """Add handlers side by side, each after all of `after`."""
        if max_batch is not None:
            require_count("max_batch", max_batch, 1, ">= 1 or None")
        if rewind is not None:
            rule = "a Rewind, as in Rewind(attempts=3), or None"
            require_instance("rewind", rewind, Rewind, rule)
        self._check_new(handlers, after)
        nodes = []
        for handler in handlers:
            barrier = self._ring.new_barrier(*_sequences(after))
            consumer = EventProcessor(self._ring, handler, barrier, self._on_error)
            consumer.sequence.value = self._ring.sequencer.begin_after
            if max_batch is not None:
                consumer.max_batch = max_batch
            if rewind is not None:
                consumer.rewind = rewind
            nodes.append(Node(consumer.handler.name, (consumer,), after))
        for node, handler in zip(nodes, handlers, strict=True):
            self._place(node, handler)
        return tuple(nodes)

    def add_pool(
        self, handlers: Seq[HandlerLike[E]], after: tuple[Node, ...]
    ) -> tuple[Node, ...]:
        """Add handlers that share one stream, after all of `after`."""
        self._check_new(handlers, after)
        barrier = self._ring.new_barrier(*_sequences(after))
        pool = WorkerPool(
            self._ring, *handlers, barrier=barrier, on_error=self._on_error
        )
        pool.begin_at(self._ring.sequencer.begin_after)
        node = Node(pool.workers[0].handler.name, pool.workers, after)
        self._place(node, *handlers)
        return (node,)

    def start(self) -> None:
        """Run the consumers added so far; later ones run as they are added."""
        self.tasks.start(self.consumers)

    def handle_exceptions_with(
        self, on_error: ExceptionHandler, handlers: Seq[object]
    ) -> None:
        """Set `on_error` for some handlers, or for all that have none of their own."""
        require_exception_handler(on_error)
        if handlers:
            # All are looked for first: if one is none of this ring, nothing changes.
            for _, consumer in [self.find(each) for each in handlers]:
                consumer.on_error = on_error
                self._has_own.add(consumer)
            return
        self._on_error = on_error
        for consumer in self.consumers:
            if consumer not in self._has_own:
                consumer.on_error = on_error

    def _check_new(self, handlers: Seq[object], after: Seq[Node]) -> None:
        """Refuse handlers that are in the graph, or given twice."""
        if self._ring.sequencer.is_closed:
            msg = "the ring is closed: handlers come too late"
            raise RingHalted(msg)
        if self.tasks.has_started:
            # Before anything is changed: they run at once.
            self._ring.sequencer.own_loop()
        if not handlers:
            msg = "at least one handler is needed"
            raise InvalidArgument(msg)
        seen: set[object] = set()
        for handler in handlers:
            identity = identity_of(handler)
            node, _ = self._by_handler.get(identity, (None, None))
            if node is not None and (path := self._path(node, after)):
                names = " -> ".join([*(each.name for each in path), node.name])
                msg = f"this would be a cycle: {names}"
                raise RingError(msg)
            if node is not None or identity in seen:
                msg = f"handler {name_of(handler)} is used twice"
                raise RingError(msg)
            seen.add(identity)

    def _path(self, start: Node, ends: Seq[Node]) -> list[Node]:
        """Return the nodes from `start` to one of the ends, or nothing."""
        paths = {start: [start]}
        for node in self.nodes:  # each comes after those before it
            before = next((paths[each] for each in node.after if each in paths), None)
            if before is not None:
                paths[node] = [*before, node]
        return next((paths[each] for each in ends if each in paths), [])

    def _place(self, node: Node, *handlers: object) -> None:
        sequencer = self._ring.sequencer
        begin_after = sequencer.begin_after
        node.name = self._free_name(node.name)
        for handler, consumer in zip(handlers, node.consumers, strict=True):
            self._by_handler[identity_of(handler)] = node, consumer
        self.nodes.append(node)
        sequencer.add_gating_sequences(*node.sequences)
        for before in node.after:
            # A node that is behind the new node's start goes on gating: else producers
            # could overwrite events it has not passed.
            if before.is_gating and before.sequence >= begin_after:
                before.is_gating = False
                for sequence in before.sequences:
                    sequencer.remove_gating_sequence(sequence)
        if self.tasks.has_started:
            self.tasks.start(node.consumers)

    def _free_name(self, name: str) -> str:
        taken = {node.name for node in self.nodes}
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}-{number}"
        return free


def _sequences(nodes: Seq[Node]) -> tuple[Sequence, ...]:
    return tuple(sequence for node in nodes for sequence in node.sequences)
