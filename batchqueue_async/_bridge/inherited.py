"""How a forked child is told that a thread is not its own."""

from __future__ import annotations

import os

from batchqueue_async._policies.errors import BatchQueueError


def refuse_inherited(name: str, process: int) -> None:
    """Refuse to use a LoopThread in a forked child.

    Raises:
        BatchQueueError: This is one, and the thread is its parent's.
    """
    if process != os.getpid():
        msg = (
            f"LoopThread {name!r} is its parent process's: a forked child makes "
            "one of its own"
        )
        raise BatchQueueError(msg)
