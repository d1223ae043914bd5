"""Draws a graph of consumers: as text, and as a Mermaid diagram."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Node


def describe(title: str, nodes: Sequence[Node]) -> str:
    """Return both drawings, the diagram in a fence as Markdown wants it."""
    return f"{_as_text(title, nodes)}\n\n```mermaid\n{_as_mermaid(title, nodes)}\n```"


def _as_text(title: str, nodes: Sequence[Node]) -> str:
    lines = [title]
    for node in nodes:
        text = "    " * _depth(node) + _label(node)
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
    return '"' + text.replace('"', "#quot;") + '"'


def _depth(node: Node) -> int:
    return 1 + max((_depth(each) for each in node.after), default=0)
