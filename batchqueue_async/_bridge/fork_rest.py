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
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Protocol

from batchqueue_async._threads.event import ThreadEvent
from batchqueue_async._threads.raise_later import raise_later


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


class Resting(Protocol):
    """What has a thread that rests during a fork."""

    @property
    def ident(self) -> int | None:
        """The thread's; None if it has not begun, or has ended."""

    def rest(self, rest: Rest) -> Callable[[], None]:
        """Have the thread call `rest.run`.

        Returns:
            What waits until it does, if it does so soon.
        """


_threads: dict[int, Resting] = {}
# By the thread that forks: two may do so at once, and in a signal handler one may do
# so in the middle of its own.
_forking: dict[int, list[list[Rest]]] = {}
_endings: dict[int, BaseException] = {}
_hooked: list[bool] = []


def remember(resting: Resting) -> None:
    """Have its thread rest during each fork, until `forget`."""
    _threads[id(resting)] = resting
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked.append(True)
        # What is hooked last comes first before a fork: its hook takes a lock that
        # our threads may wait for on their way to rest. At the interpreter's exit it
        # can't be imported any more, nor without a file that may be opened.
        with suppress(RuntimeError, OSError, MemoryError):
            import concurrent.futures.thread  # noqa: F401, PLC0415

        os.register_at_fork(
            before=_begin, after_in_parent=_end, after_in_child=_leave_to_parent
        )


def forget(resting: Resting) -> None:
    """Its thread has ended."""
    _threads.pop(id(resting), None)


def _begin() -> None:
    here = get_ident()
    rests: list[Rest] = []
    _forking.setdefault(here, []).append(rests)
    try:
        waits = []
        for each in [*_threads.values()]:
            if each.ident != here:
                rest = Rest()
                rests.append(rest)
                waits.append(each.rest(rest))
        # All are asked by now, and come to rest side by side.
        for wait in waits:
            wait()
    except (SystemExit, KeyboardInterrupt) as ending:
        # A signal handler's, and the parent's alone.
        _endings[here] = ending


def _end() -> None:
    here = get_ident()
    forks = _forking.get(here)
    if forks:
        for each in forks.pop():
            each.over.set()
    if not forks:
        _forking.pop(here, None)
    if (ending := _endings.pop(here, None)) is not None:
        raise_later(ending, _end.__code__)


def _leave_to_parent() -> None:
    _threads.clear()
    _forking.clear()
    _endings.clear()
