"""Tells a cancellation that is meant from one that a handler brought about.

A drain task ends at its queue's deadline, and with its loop. Any other cancellation
that reaches it comes from user code, such as a handler that cancels the task it runs
in; that must not end the draining.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

from batchqueue_async._engine.runtime.loop_registry import LoopRegistry

_cancelled_for_good: WeakSet[asyncio.Task[Any]] = WeakSet()


def cancel_for_good(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and mean it."""
    _cancelled_for_good.add(task)
    task.cancel()


def is_cancelled_for_good() -> bool:
    """Whether the current task is to end: so it was told, or its loop ends."""
    task = asyncio.current_task()
    return (
        task in _cancelled_for_good
        or LoopRegistry.of(asyncio.get_running_loop()).is_ending
    )


def uncancel() -> None:
    """Forget the cancellations of the current task that were not meant."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
