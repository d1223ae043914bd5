"""Handlers that were added together, as the point where others go on."""

from __future__ import annotations

from typing import Generic, TypeVar

from .consumers import Consumers, Pace
from .graph import Node
from .handlers import HandlerLike
from .rewind import Rewind

E = TypeVar("E")


class HandlerGroup(Generic[E]):
    """Some handlers of a ring: whatever is added here comes after all of them."""

    def __init__(self, consumers: Consumers[E], nodes: tuple[Node, ...]) -> None:
        self._consumers = consumers
        self._nodes = nodes

    def handle_events_with(
        self,
        *handlers: HandlerLike[E],
        max_batch: int | None = None,
        rewind: Rewind | None = None,
    ) -> HandlerGroup[E]:
        """Add handlers that get each event after all of this group have passed it.

        Args:
            handlers: They work side by side. Of a ring that runs, they get what comes
                after its cursor.
            max_batch: Events per batch at most.
            rewind: What `RewindBatch` does; by default it rewinds, without a limit.

        Raises:
            RingError: A handler is used twice, or the graph would have a cycle.
            RingHalted: The ring was shut down or halted.
        """
        pace = Pace(max_batch, Rewind() if rewind is None else rewind)
        nodes = self._consumers.add(handlers, self._nodes, pace)
        return HandlerGroup(self._consumers, nodes)

    def then(
        self,
        *handlers: HandlerLike[E],
        max_batch: int | None = None,
        rewind: Rewind | None = None,
    ) -> HandlerGroup[E]:
        """Add handlers as `handle_events_with` does: it reads better in a chain."""
        return self.handle_events_with(*handlers, max_batch=max_batch, rewind=rewind)

    def handle_events_with_worker_pool(
        self, *handlers: HandlerLike[E]
    ) -> HandlerGroup[E]:
        """Add handlers that share the events: each goes to exactly one of them.

        Raises:
            RingError: A handler is used twice, or the graph would have a cycle.
            RingHalted: The ring was shut down or halted.
        """
        node = self._consumers.add_pool(handlers, self._nodes)
        return HandlerGroup(self._consumers, (node,))

    def and_(self, other: HandlerGroup[E]) -> HandlerGroup[E]:
        """Return a group of this one's handlers and the other's."""
        nodes = dict.fromkeys((*self._nodes, *other._nodes))
        return HandlerGroup(self._consumers, tuple(nodes))
