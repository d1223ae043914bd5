"""What a ring looks like at one moment: in numbers, and drawn as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .consumer_repository import Node
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


def snapshot(ring: RingBuffer[Any], nodes: Sequence[Node]) -> RingStats:
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
                failed=sum(each.failed for each in node.consumers),
                is_gating=node.is_gating,
            )
            for node in nodes
        ),
    )


def describe(title: str, nodes: Sequence[Node]) -> str:
    """Return both drawings, the diagram in a fence as Markdown wants it."""
    return f"{_as_text(title, nodes)}\n\n```mermaid\n{_as_mermaid(title, nodes)}\n```"


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
