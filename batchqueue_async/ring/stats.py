"""What a ring looks like at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .graph import Node
from .ring_buffer import RingBuffer


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One handler, or one pool of workers.

    Attributes:
        name: What `describe` calls it.
        sequence: The last event that it has passed.
        lag: How many claimed events it has not passed.
        failed: How often its handlers raised.
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


def snapshot(ring: RingBuffer[Any], nodes: Iterable[Node]) -> RingStats:
    """Return what the ring and its consumers look like now."""
    sequencer = ring.sequencer
    return RingStats(
        capacity=ring.capacity,
        cursor=ring.cursor,
        claimed=sequencer.claimed,
        published=sequencer.published,
        remaining_capacity=ring.remaining_capacity(),
        claims_waited=sequencer.claims_waited,
        claims_waiting=sequencer.claims_waiting,
        consumers=tuple(
            ConsumerStats(
                name=node.name,
                sequence=node.sequence,
                lag=sequencer.claimed - node.sequence,
                failed=sum(each.delivery.faults.failed for each in node.consumers),
                is_gating=node.is_gating,
            )
            for node in nodes
        ),
    )
