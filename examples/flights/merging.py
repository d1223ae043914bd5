"""L1 and L2: merge the windows of a metric, and pass them on from time to time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from batchqueue_async import BatchQueue, Merging

from .metrics import Window

Then: TypeAlias = BatchQueue[Window] | Callable[[list[Window]], object]
"""The queue of the next stage; or what takes the windows on executors."""


def merging(downstream: Then, *, every: float, at_most: int | None) -> Merging[Window]:
    """Return the handler of one metric type: it merges windows of a key and hour.

    Args:
        downstream: Where they go.
        every: Seconds after which windows are passed on.
        at_most: How many windows are held back at most; more are passed on at once.
            None for as many as there are.
    """
    return Merging(
        key=_key, merge=_combined, then=downstream, every=every, at_most=at_most
    )


def _key(window: Window) -> tuple[str, int]:
    return window.key, window.hour


def _combined(old: Window, new: Window) -> Window:
    old.combine(new)
    return old
