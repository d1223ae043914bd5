"""What happens to `LoopThread`s that still run when the interpreter exits.

Before it joins its threads, since after that nobody's threads would be left to work on;
all there are still run then, daemons too. Python 3.12 and later start no more.

One that is late, as that of a log, is flushed then, and drained by `atexit`: threads
that the exit waits for may go on, and log, for long.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from operator import attrgetter, is_
from typing import TYPE_CHECKING

from batchqueue_async._policies.errors import BatchQueueError

# Loops need it, and it can't be imported any more once the interpreter exits.
with contextlib.suppress(RuntimeError):
    import concurrent.futures.thread  # noqa: F401

if TYPE_CHECKING:
    from batchqueue_async._bridge.loop_run import LoopRun


# They keep alive what their users have lost sight of.
_running: dict[int, LoopRun] = {}
# A forked child keeps its parent's, too: the end of a loop would touch its sockets.
_inherited: list[LoopRun] = []
_turns = count()
_hooked: list[bool] = []
_exiting: list[bool] = []
_ended: list[bool] = []
# Whether a thread waits for the others, to drain after them; it does not begin while
# the main thread drains, which looks itself for what is started meanwhile.
_last: list[bool] = []
_draining = [threading.RLock()]


def remember(running: LoopRun) -> None:
    """Have it drained at the interpreter's exit, unless `forget` comes before."""
    drain_before_others(running)
    _running[id(running)] = running
    if not _hooked:
        _hooked.append(True)
        _hook(running)
    elif is_exiting():
        _drain_late(running)


def drain_before_others(running: LoopRun) -> None:
    """It has opened a queue, which may feed the others."""
    running.turn = next(_turns)


def forget(running: LoopRun) -> None:
    _running.pop(id(running), None)


def is_exiting() -> bool:
    """Whether the interpreter is about to end, so that nothing catches an exception."""
    return bool(_exiting)


def _hook(running: LoopRun) -> None:
    # After all threads that are no daemons have ended; before what a program had asked
    # for by then, which may use what the queues feed.
    atexit.register(_drain)
    register = getattr(threading, "_register_atexit", None)
    if register is None:
        return
    try:
        # What is hooked last runs first: before asyncio's own worker threads are ended,
        # which handlers may work with. Their module is there: see above.
        register(_drain_before_joining)
    except RuntimeError:
        # The threads are about to be joined, or are joined already.
        _drain_late(running)


def _drain_late(running: LoopRun) -> None:
    # The main thread runs Python here only if `atexit` calls it: `_drain` is to come.
    if not running.is_of_main_thread or _has_no_atexit() or _ended:
        _drain_after_threads()


def _drain_after_threads() -> bool:
    """Drain what was started by a thread that the exit waits for, when that has ended.

    A process of `multiprocessing` waits for its threads, and then ends without `atexit`
    before Python 3.13: so a thread does it that is waited for, too. Returns False if
    there is none to be had.
    """

    def drain() -> None:
        while others := _others():
            for each in others:
                each.join()
        _last.clear()
        _drain()

    if not _last:
        _last.append(True)
        # None is to be had? Then `atexit` is left, which runs where that is so.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=drain, name="batchqueue last", daemon=False).start()
            return True
        return False
    return True


def _others() -> list[threading.Thread]:
    beside = (threading.current_thread(), threading.main_thread())
    return [
        each for each in threading.enumerate() if not each.daemon and each not in beside
    ]


def _drain_before_joining() -> None:
    """Drain all but those that a thread works with which the interpreter waits for."""
    _exiting.append(True)
    if _has_no_atexit() and not (_others() and _drain_after_threads()):
        _drain_all(lambda running: not _is_left_later(running))
        return
    # First: what is drained next may be what it feeds. And what that logs by it.
    _flush_late()
    _drain_all(lambda running: not (running.is_late or _is_left_later(running)))
    _flush_late()


def drain_before_processes_end() -> None:
    """Drain what processes are at work for, where they are ended before the threads.

    So it is in a process of `multiprocessing`, before Python 3.13. One that has threads
    to wait for drains after them all the same, since they may wait for its main thread.
    """
    if _has_no_atexit() and not _others():
        _drain_before_joining()


def _flush_late() -> None:
    # What targets open meanwhile is drained afterwards, not before they have used it.
    with _draining[0]:
        for running in [each for each in _running.values() if each.is_late]:
            if not running.is_flushed_at_exit():
                _drain_all(partial(is_, running))


def _drain() -> None:
    # What is late is left to who is called even later: `close_process_queues`.
    _drain_all(lambda running: not running.is_late or _has_no_atexit())


@atexit.register
def _drain_at_last() -> None:
    # What was started by functions that `atexit` has called before.
    _drain()
    _ended.append(True)


def _has_no_atexit() -> bool:
    """Whether the process is one of `multiprocessing`, which takes all of it away."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _is_left_later(running: LoopRun) -> bool:
    thread = running.entered_by or running.started_late_by
    if thread is None or thread is threading.main_thread():
        return False
    return thread.is_alive() and not thread.daemon


def _drain_all(is_meant: Callable[[LoopRun], bool]) -> None:
    begun: list[LoopRun] = []
    with _draining[0]:
        _exiting.append(True)
        # The last first: it may feed the others. Or start one to feed.
        while left := [
            each
            for each in [*_running.values()]
            if each not in begun and is_meant(each)
        ]:
            begun.append(max(left, key=attrgetter("turn")))
            # Each logs for itself; a third Ctrl-C ends this one, and the next is begun.
            with contextlib.suppress(BaseException):
                begun[-1].drain_at_exit()


def _leave_to_parent() -> None:
    _inherited.extend(_running.values())
    _running.clear()
    # `multiprocessing` takes its children's `atexit` away.
    _hooked.clear()
    _exiting.clear()
    _last.clear()
    _draining[:] = [threading.RLock()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def refuse_inherited(name: str, process: int) -> None:
    if process != os.getpid():
        msg = (
            f"LoopThread {name!r} is its parent process's: a forked child makes "
            "one of its own"
        )
        raise BatchQueueError(msg)
