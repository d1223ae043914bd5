"""Who consumes after whom, and who of them holds the producers back.

Invariants:
* A node comes after nodes that were there before it, and a handler is in one node at
  most: so there is no cycle.
* Every event is passed by a gating sequence only after everybody has passed it. Those
  are the last nodes' sequences, and those of nodes that are behind a later one's start.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from .crew import Consumer
from .errors import InvalidArgument, RingError
from .handlers import identity_of, name_of
from .sequence import Sequence
from .sequencer import Sequencer


@dataclass(eq=False, slots=True)
class Node:
    """One handler, or one pool of them, with what it comes after."""

    name: str
    handlers: tuple[object, ...]
    consumers: tuple[Consumer, ...]
    after: tuple[Node, ...]
    is_gating: bool = True

    def index_of(self, handler: object) -> int:
        """Return which of its consumers calls the handler."""
        identities = [identity_of(each) for each in self.handlers]
        return identities.index(identity_of(handler))

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """How far its consumers have come; the node as far as the slowest."""
        return tuple(consumer.sequence for consumer in self.consumers)

    @property
    def sequence(self) -> int:
        """The last event that the node has passed."""
        return min(sequence.value for sequence in self.sequences)


class Graph:
    """The consumers of one ring."""

    def __init__(self, sequencer: Sequencer) -> None:
        self.nodes: list[Node] = []
        self._sequencer = sequencer
        self._by_handler: dict[object, Node] = {}

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """Those of all consumers."""
        return tuple(each for node in self.nodes for each in node.sequences)

    def node_of(self, handler: object) -> Node:
        """Return the handler's node.

        Raises:
            InvalidArgument: It does not consume this ring.
        """
        try:
            return self._by_handler[identity_of(handler)]
        except KeyError:
            msg = f"{name_of(handler)} is no handler of this ring"
            raise InvalidArgument(msg) from None

    def check_new(self, handlers: Seq[object], after: Seq[Node]) -> None:
        """Refuse handlers that are in the graph, or given twice.

        Raises:
            RingError: Naming the cycle that there would be, if there would be one.
        """
        if not handlers:
            msg = "at least one handler is needed"
            raise InvalidArgument(msg)
        seen: set[object] = set()
        for handler in handlers:
            identity = identity_of(handler)
            node = self._by_handler.get(identity)
            if node is not None and (path := _path(node, after)):
                names = " -> ".join([*(each.name for each in path), node.name])
                msg = f"this would be a cycle: {names}"
                raise RingError(msg)
            if node is not None or identity in seen:
                msg = f"handler {name_of(handler)} is used twice"
                raise RingError(msg)
            seen.add(identity)

    def add(self, node: Node, begin_at: int) -> None:
        """Add a node whose consumers begin after `begin_at`."""
        node.name = self._free_name(node.name)
        for handler in node.handlers:
            self._by_handler[identity_of(handler)] = node
        self.nodes.append(node)
        self._sequencer.add_gating_sequences(*node.sequences)
        for before in node.after:
            # One that is behind the new one's start would be overtaken otherwise.
            if before.is_gating and before.sequence >= begin_at:
                before.is_gating = False
                for sequence in before.sequences:
                    self._sequencer.remove_gating_sequence(sequence)

    def _free_name(self, name: str) -> str:
        taken = {node.name for node in self.nodes}
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}-{number}"
        return free


def _path(start: Node, ends: Seq[Node]) -> list[Node]:
    """Return the nodes from `start` to one of the ends, or nothing."""
    next_of: dict[Node, Node | None] = dict.fromkeys(ends)
    pending = list(ends)
    while pending:
        node = pending.pop()
        if node is start:
            break
        for before in node.after:
            if before not in next_of:
                next_of[before] = node
                pending.append(before)
    else:
        return []
    path, following = [start], next_of[start]
    while following is not None:
        path.append(following)
        following = next_of[following]
    return path
