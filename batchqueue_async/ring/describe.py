"""Draws a graph of consumers: as text, and as a Mermaid diagram."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Node


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
