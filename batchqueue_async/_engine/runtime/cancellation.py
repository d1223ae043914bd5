"""Tells a cancellation that is meant from one that a handler brought about.

A drain task ends at its queue's deadline, and with its loop. Any other cancellation
that reaches it comes from user code, such as a handler that cancels the task it runs
in; that must not end the draining.

A loop's canary task is cancelled by nobody but those who cancel all of its tasks, which
is how most loops end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

GRACE = 0.1
"""Seconds that a cancelled handler may take to clean up before it is left behind."""

_CANARY = "_batchqueue_async_canary"

_cancelled_for_good: WeakSet[asyncio.Task[Any]] = WeakSet()


def cancel_for_good(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and mean it."""
    _cancelled_for_good.add(task)
    task.cancel()


def is_cancelled_for_good() -> bool:
    """Whether the current task is to end: so it was told, or its loop ends."""
    task = asyncio.current_task()
    return task in _cancelled_for_good or is_ending(asyncio.get_running_loop())


def uncancel() -> None:
    """Forget the cancellations of the current task that were not meant."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def absorb_cancellation() -> None:
    """Let a cancellation come that user code has asked for, of the task it ran in.

    Left pending, it would strike whoever is called next.
    """
    task = asyncio.current_task()
    if task is None or not task.cancelling() or is_cancelled_for_good():
        return
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    if is_cancelled_for_good():
        # By somebody else, meanwhile.
        task.cancel()
    else:
        uncancel()


class CanaryTask(asyncio.Task[None]):
    """A task that nobody cancels but those who cancel all; tells who has it."""

    is_stray = False
    """Whether it was cancelled from inside of its loop, which may live on."""
    on_cancel: Callable[[], None] = staticmethod(lambda: None)

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - as in Task
        self.is_stray = self.get_loop().is_running()
        if not self.done():
            self.on_cancel()
        return super().cancel(msg)


def canary_of(loop: asyncio.AbstractEventLoop) -> CanaryTask | None:
    """Return the loop's canary, if it has one."""
    canary: CanaryTask | None = getattr(loop, _CANARY, None)
    return canary


def set_canary(loop: asyncio.AbstractEventLoop, canary: CanaryTask | None) -> None:
    """Let the loop have this one from now on."""
    setattr(loop, _CANARY, canary)


def is_ending(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether all tasks of the loop are being cancelled, as at its end."""
    canary = canary_of(loop)
    # Without one nothing is kept: a start that failed leaves its tasks to the loop.
    return canary is None or canary.done() or canary.cancelling() > 0
