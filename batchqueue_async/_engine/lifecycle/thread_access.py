"""Asks for the bridge, which the engine does not know: it comes and says how."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

Open: TypeAlias = "Callable[[Parts[Any]], None]"

_ways: list[Open] = []


def opened_by(way: Open) -> None:
    """Have queues opened to other threads in this way from now on."""
    _ways[:] = [way]


def open_to_threads(parts: Parts[Any]) -> None:
    """Let other threads put, too; called on the queue's loop, when it runs."""
    for way in _ways:
        way(parts)
