"""Our threads rest while their process is forked, where they hold no lock.

A forked child has one thread and a copy of every lock, and one that another thread held
at that moment is never released there. Python sees to most of its own, but not to those
of imports, nor to those of C libraries, in which a thread works without the
interpreter's lock: where a handler's driver was setting TLS up, each TLS connection of
the child would wait inside of OpenSSL for ever.

So a fork waits until each of our threads is between two calls. One that is not soon is
blocked in most cases, and the fork goes ahead: nobody may hold it up for long.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from threading import get_ident
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from batchqueue_async._threads.event import ThreadEvent

if TYPE_CHECKING:
    from batchqueue_async._bridge.loop_run import LoopRun
    from batchqueue_async._bridge.worker import WorkerThread


class Rest:
    """A pause of one thread, from its next call until the fork is over."""

    __slots__ = ("over", "reached")

    def __init__(self) -> None:
        self.reached = ThreadEvent()
        self.over = ThreadEvent()

    def run(self) -> None:
        """Rest, on the thread; at once over if it comes too late."""
        self.reached.set()
        while not self.over.is_set:
            self.over.wait(1.0)


# Those whose threads have to rest, by id. Their `rest` asks for it, and returns a
# function that waits for it, but not for long.
_threads: dict[int, LoopRun | WorkerThread] = {}
# Rests by the thread that forks, since two may fork at once. A list for each fork: a
# signal handler may fork in the middle of another one.
_forking: dict[int, list[list[Rest]]] = {}
_endings: dict[int, BaseException] = {}
_hooked: list[bool] = []
_ROUNDS = 10  # More than threads that rest let others start; not without end.


def remember(resting: LoopRun | WorkerThread) -> None:
    """Have its thread rest during each fork, until `forget`."""
    _threads[id(resting)] = resting
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked.append(True)
        # Imported first, so that its hook comes after ours before a fork. That takes a
        # lock which our threads may need before they rest. The import fails at the
        # interpreter's exit, and where no more files may be opened.
        with suppress(RuntimeError, OSError, MemoryError):
            import concurrent.futures.thread  # noqa: F401, PLC0415

        os.register_at_fork(
            before=_begin, after_in_parent=_end, after_in_child=_leave_to_parent
        )


def forget(resting: LoopRun | WorkerThread) -> None:
    _threads.pop(id(resting), None)


def _begin() -> None:
    here = get_ident()
    rests: list[Rest] = []
    _forking.setdefault(here, []).append(rests)
    try:
        asked: dict[int, LoopRun | WorkerThread] = {}
        # Some more times: a thread that is not ours may start one while others come to
        # rest, and a starting one imports.
        for _ in range(_ROUNDS):
            new = {n: each for n, each in [*_threads.items()] if n not in asked}
            if not new:
                break
            asked |= new
            _rest(new, rests, here)
    except (SystemExit, KeyboardInterrupt) as ending:
        # A signal handler has raised it. It is raised in the parent alone, by `_end`.
        _endings[here] = ending


def _rest(
    threads: dict[int, LoopRun | WorkerThread], rests: list[Rest], here: int
) -> None:
    waits = []
    for each in threads.values():
        if each.ident != here:
            rest = Rest()
            rests.append(rest)
            waits.append(each.rest(rest))
    # Only now, so that all of them come to rest side by side.
    for wait in waits:
        wait()


def _end() -> None:
    here = get_ident()
    forks = _forking.get(here)
    if forks:
        for each in forks.pop():
            each.over.set()
    if not forks:
        _forking.pop(here, None)
    if (ending := _endings.pop(here, None)) is not None:
        _raise_later(ending, _end.__code__)


def _leave_to_parent() -> None:
    _threads.clear()
    _forking.clear()
    _endings.clear()


def _raise_later(error: BaseException, hook: CodeType) -> None:
    """Have the main thread raise it once it has left the hook, which calls this.

    Of the hook itself Python would only print it. It is what a signal handler has
    raised there, so it comes as a signal does. Called by another thread it does
    nothing: those have no signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def strike(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        raise error

    before = signal.getsignal(signal.SIGINT)
    if before is not None:  # It would be C's, and could not be put back.
        signal.signal(signal.SIGINT, strike)
        threading.Thread(target=_interrupt, args=(hook,), daemon=True).start()


def _interrupt(hook: CodeType) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while _is_in(hook, sys._current_frames().get(main)):  # noqa: SLF001
        time.sleep(0.0001)
    # The main thread may sleep by now, from which only a real signal wakes it.
    signal.pthread_kill(main, signal.SIGINT)


def _is_in(hook: CodeType, frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not hook:
        frame = frame.f_back
    return frame is not None
