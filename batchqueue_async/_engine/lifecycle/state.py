"""Which state of its life a queue is in, and who may use it then."""

from __future__ import annotations

import asyncio
from _thread import get_ident
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from batchqueue_async._engine.runtime.forking import is_abandoned
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._running_loop import running_loop

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


class State(Enum):
    """The state of a queue; it only goes forward, never back."""

    NEW = "new"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    LOST = "ended with its loop"
    INHERITED = "inherited by a forked child"

    @property
    def refuses_items(self) -> bool:
        """Whether shutdown has begun, or the queue is not this process's."""
        return self not in (State.NEW, State.RUNNING)

    @property
    def has_begun_to_close(self) -> bool:
        """Whether shutdown has begun; not where the loop ended without one."""
        return self.refuses_items and self is not State.LOST


ENDED = frozenset((State.CLOSED, State.LOST))
"""The states in which nothing of a queue runs any more."""


def bind_to_running_loop(parts: Parts) -> asyncio.AbstractEventLoop:
    """Bind the queue to the running loop, and return the loop."""
    parts.loop = running_loop(f"queue {parts.name!r}")
    parts.thread = get_ident()
    parts.state = State.RUNNING
    return parts.loop


def admits(parts: Parts) -> bool:
    """Whether items may come in now; False once shutdown has begun."""
    if parts.state is State.RUNNING:
        require_own_loop(parts)
        return True
    if parts.state is State.NEW:
        msg = (
            f"queue {parts.name!r} is not started: use it in async with, or await its "
            "start()"
        )
        raise BatchQueueError(msg)
    refuse_fork(parts)
    return False


def refuse_fork(parts: Parts, *, though_closed: bool = False) -> None:
    """Refuse a parent's queue in a forked child, also one that was closed there."""
    is_parents = though_closed and is_abandoned(parts.lifecycle)
    if is_parents or parts.state is State.INHERITED:
        msg = (
            f"queue {parts.name!r} is its parent process's: a forked child makes "
            "queues of its own, as process_queue does"
        )
        raise BatchQueueError(msg)


def require_own_loop(parts: Parts) -> None:
    """Refuse callers from other threads and loops while the queue runs or closes."""
    if parts.state not in (State.RUNNING, State.CLOSING):
        return
    if asyncio._get_running_loop() is not parts.loop:  # noqa: SLF001
        msg = (
            f"queue {parts.name!r} was used from outside of its event loop; "
            "other threads go through a SyncBatchQueue"
        )
        raise BatchQueueError(msg)


_thread_opener: Callable[[Parts], None] | None = None


def opened_by(opener: Callable[[Parts], None]) -> None:
    """Set what opens queues to other threads: the bridge's, a layer above this one."""
    global _thread_opener  # noqa: PLW0603 - set once, by the package's import
    _thread_opener = opener


def open_to_threads(parts: Parts) -> None:
    """Let other threads use the queue, too, if the bridge is there."""
    if _thread_opener is not None:
        _thread_opener(parts)
