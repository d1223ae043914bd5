"""Where a queue is in its life."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """It only goes on, never back."""

    NEW = "new"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    LOST = "ended with its loop"
    INHERITED = "inherited by a forked child"
