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
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from operator import attrgetter, is_
from typing import TYPE_CHECKING

# Loops need it, and it can't be imported any more once the interpreter exits.
with contextlib.suppress(RuntimeError):
    import concurrent.futures.thread  # noqa: F401

from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._process_end import (
    call_as_it_begins,
    has_no_atexit,
    is_importing,
    other_threads,
)

if TYPE_CHECKING:
    from batchqueue_async._bridge.loop_run import LoopRun


# Here they are kept alive, even if their users have dropped them.
_running: dict[int, LoopRun] = {}
# A forked child keeps its parent's, too: to free a loop would touch its sockets.
_inherited: list[LoopRun] = []
_turns = count()


class _Exit:
    """How far this process is on its way to its end."""

    def __init__(self, *, has_ended: bool = False) -> None:
        self.is_hooked = False
        self.is_before_multiprocessing = False
        self.has_begun = False
        # Whether `atexit` has called what it calls last.
        self.has_ended = has_ended
        # Whether a thread waits for the others to end, and drains then. It does not do
        # so while the main thread drains: that looks by itself for what was started.
        self.has_last_thread = False
        self.draining = threading.RLock()


_exit = _Exit()


def remember(running: LoopRun) -> None:
    """Have it drained at the interpreter's exit, unless `forget` comes before."""
    put_first(running)
    _running[id(running)] = running
    if not _exit.is_hooked:
        _exit.is_hooked = True
        _hook(running)
    elif is_exiting():
        _drain_late(running)


def put_first(running: LoopRun) -> None:
    """Have it drained before the others: it has opened a queue that may feed them."""
    running.turn = next(_turns)


def forget(running: LoopRun) -> None:
    _running.pop(id(running), None)


def is_exiting() -> bool:
    """Whether the interpreter is about to end, so that nothing catches an exception."""
    return _exit.has_begun


def _hook(running: LoopRun) -> None:
    if is_importing():
        call_as_it_begins(_drain_before_it_ends)
    if has_no_atexit() or is_importing():
        drain_before_multiprocessing_ends()
    # `atexit` calls it after all threads that are no daemons have ended, and before
    # what the program has registered by now, which may use what handlers have written.
    atexit.register(_drain)
    register = getattr(threading, "_register_atexit", None)
    if register is None:
        return
    try:
        # What is hooked last runs first. So it comes before the end of asyncio's worker
        # threads, which handlers may use: their module, imported above, hooks that.
        register(_drain_before_joining)
    except RuntimeError:
        # The threads are about to be joined, or are joined already.
        _drain_late(running)


def _drain_late(running: LoopRun) -> None:
    # On the main thread this is a call of `atexit`, which `_drain_at_last` will follow.
    if not running.is_of_main_thread or has_no_atexit() or _exit.has_ended:
        _drain_after_threads()


def _drain_after_threads() -> bool:
    """Drain what was started by a thread that the exit waits for, when that has ended.

    A process of `multiprocessing` waits for its threads, and then ends without `atexit`
    before Python 3.13: so a thread does it that is waited for, too. Returns False if
    there is none to be had.
    """

    def drain() -> None:
        while others := other_threads():
            for each in others:
                each.join()
        _exit.has_last_thread = False
        _drain()

    if not _exit.has_last_thread:
        _exit.has_last_thread = True
        # If no thread can be started, `atexit` still calls `_drain`.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=drain, name="batchqueue last", daemon=False).start()
            return True
        return False
    return True


def _drain_before_joining() -> None:
    """Drain all but those that a thread works with which the interpreter waits for."""
    _exit.has_begun = True
    if has_no_atexit() and not (other_threads() and _drain_after_threads()):
        _drain_all(lambda running: not _is_left_later(running))
        return
    # Before, since it may feed what is drained next; and after, since that may log.
    _flush_late()
    _drain_all(lambda running: not (running.is_late or _is_left_later(running)))
    _flush_late()


def drain_before_multiprocessing_ends() -> None:
    """Have a process of `multiprocessing` drain before what handlers may use is ended.

    Before it waits for its threads it closes its `Queue`s, which take what is put then
    and send nothing, and ends its children. One that has threads to wait for only hands
    on what waits, and drains after them: they may produce, or wait for its main thread.
    """
    from multiprocessing.util import Finalize  # noqa: PLC0415 - few programs need it

    if _exit.is_before_multiprocessing:
        return
    _exit.is_before_multiprocessing = True

    def drain() -> None:
        if not has_no_atexit():
            return
        if not other_threads():
            _drain_before_joining()
            return
        for running in sorted(_running.values(), key=attrgetter("turn"), reverse=True):
            # What fails, or is late, is told of when it does, or drains later.
            with contextlib.suppress(BatchQueueError, TimeoutError):
                running.flush()

    # Above the priority of whatever else there is.
    Finalize(None, drain, exitpriority=100)


def _drain_before_it_ends() -> None:
    _exit.is_before_multiprocessing = False
    drain_before_multiprocessing_ends()


def _flush_late() -> None:
    # What targets open meanwhile is drained afterwards, not before they have used it.
    with _exit.draining:
        for running in [each for each in _running.values() if each.is_late]:
            if not running.is_flushed_at_exit():
                _drain_all(partial(is_, running))


def _drain() -> None:
    # What is late is drained by `close_process_queues`, which `atexit` calls later.
    _drain_all(lambda running: not running.is_late or has_no_atexit())


@atexit.register
def _drain_at_last() -> None:
    # For what functions have started that `atexit` called before this one.
    _drain()
    _exit.has_ended = True


def _is_left_later(running: LoopRun) -> bool:
    thread = running.entered_by or running.started_late_by
    if thread is None or thread is threading.main_thread():
        return False
    return thread.is_alive() and not thread.daemon


def _drain_all(is_meant: Callable[[LoopRun], bool]) -> None:
    begun: list[LoopRun] = []
    with _exit.draining:
        _exit.has_begun = True
        # The last one first, since it may feed the others. It may start another one, so
        # each round looks anew.
        while left := [
            each
            for each in [*_running.values()]
            if each not in begun and is_meant(each)
        ]:
            begun.append(max(left, key=attrgetter("turn")))
            # Each logs what fails. A third Ctrl-C gives it up, and the next one begins.
            with contextlib.suppress(BaseException):
                begun[-1].drain_at_exit()


def _leave_to_parent() -> None:
    global _exit  # noqa: PLW0603 - one per process is the point
    _inherited.extend(_running.values())
    _running.clear()
    # Not hooked either: `multiprocessing` takes its children's `atexit` away.
    _exit = _Exit(has_ended=_exit.has_ended)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
