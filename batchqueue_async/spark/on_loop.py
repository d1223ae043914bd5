"""Runs anything else on the loop of a queue, for another thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from batchqueue_async import SyncBatchQueue

R = TypeVar("R")


def on_loop(
    sync_queue: SyncBatchQueue[Any], start: Callable[[], Coroutine[Any, Any, R]]
) -> R:
    """Run a coroutine there and wait for it; it is cancelled if the wait ends early.

    Raises:
        BatchQueueError: The loop is dead, or this is its own thread.
    """
    sync_queue._refuse_own_thread()  # noqa: SLF001  # the bridge's layer is ours to use
    return sync_queue._on_loop(start)  # noqa: SLF001
