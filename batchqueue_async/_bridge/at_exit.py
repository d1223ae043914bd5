"""What happens to `LoopThread`s that still run when the interpreter exits.

Before it joins its threads, since after that nobody's threads would be left to work on;
all there are still run then, daemons too. Python 3.12 and later start no more.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from typing import Protocol

from batchqueue_async._policies.errors import BatchQueueError


class DrainsAtExit(Protocol):
    """Something that runs, and that must not end in silence."""

    entered_by: threading.Thread | None
    """The thread that is in its `with` block, and will leave that by itself."""

    def drain_at_exit(self) -> None:
        """Drain it, within its own time; what is left then is logged."""


# In order of their start. They keep alive what their users have lost sight of.
_running: dict[int, DrainsAtExit] = {}
# A forked child keeps its parent's, too: the end of a loop would touch its sockets.
_inherited: list[DrainsAtExit] = []
_hooked: list[bool] = []
_exiting: list[bool] = []


def remember(running: DrainsAtExit) -> None:
    """Have it drained at the interpreter's exit, unless `forget` comes before."""
    _running[id(running)] = running
    if not _hooked:
        _hooked.append(True)
        _hook()


def forget(running: DrainsAtExit) -> None:
    """It has ended."""
    _running.pop(id(running), None)


def is_exiting() -> bool:
    """Whether the interpreter is about to end, so that nothing catches an exception."""
    return bool(_exiting)


def _hook() -> None:
    # After all threads that are no daemons have ended.
    atexit.register(_drain)
    register = getattr(threading, "_register_atexit", None)
    # Too late where the threads are about to be joined, or are joined already.
    with contextlib.suppress(RuntimeError):
        # What is hooked last runs first: before asyncio's own worker threads are ended,
        # which handlers may work with. So their module has to be there.
        import concurrent.futures.thread  # noqa: F401, PLC0415

        if register is not None:
            register(_drain_before_joining)


def _drain_before_joining() -> None:
    """Drain all but those that a thread works with which the interpreter waits for."""
    _drain_all([each for each in _running.values() if not _is_left_later(each)])


def _drain() -> None:
    _drain_all([*_running.values()])


def _is_left_later(running: DrainsAtExit) -> bool:
    thread = running.entered_by
    if thread is None or thread is threading.main_thread():
        return False
    return thread.is_alive() and not thread.daemon


def _drain_all(running: list[DrainsAtExit]) -> None:
    _exiting.append(True)
    # The last started first: it may feed the others.
    for each in reversed(running):
        # Each logs for itself; a third Ctrl-C ends this one, and the next is begun.
        with contextlib.suppress(BaseException):
            each.drain_at_exit()


def _leave_to_parent() -> None:
    _inherited.extend(_running.values())
    _running.clear()
    _exiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


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
