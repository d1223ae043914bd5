"""Calls back on asyncio's own loop, from other threads, with few system calls.

`loop.call_soon_threadsafe` writes a byte into a socket, and the loop reads until there
is nothing more: two calls, and an exception. An eventfd is written once and read once.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from collections import deque
from collections.abc import Callable
from contextvars import Context

from batchqueue_async._loop_close import call_at_close
from batchqueue_async._loop_time import kept_by

_FILE = "_batchqueue_async_wake_up_file"

# Files whose loops are closed. They stay open for other loops, since a thread may be
# about to write: to the loop that has it next that is a wake-up for nothing, but under
# the number of a closed file it could write into anybody's.
_spare: list[int] = []


class WakeUpFile:
    """What all queues on one loop have it woken by, from other threads."""

    __slots__ = ("_calls", "_is_calling", "_loop", "_number", "_process")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        # A call may run the loop inside of itself, which can't enter `_read` again.
        self._is_calling = False
        self._process = os.getpid()
        try:
            self._number = _spare.pop()
        except IndexError:
            self._number = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            # In a context of its own: it is kept for as long as the loop lives.
            Context().run(loop.add_reader, self._number, self._read)
            call_at_close(loop, self._leave_spare)
        except BaseException:
            loop.remove_reader(self._number)
            self._leave_spare()
            raise

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> WakeUpFile | None:
        """Return the loop's file; the first call, on the loop's thread, opens it.

        None where there is no such thing: on another system, for a loop that is woken
        in a way of its own, such as uvloop's, and if no more files can be opened.
        """
        if not _is_woken_by_files(loop) or not hasattr(os, "eventfd"):
            return None
        try:
            return kept_by(loop, _FILE, lambda: WakeUpFile(loop))
        except OSError:
            return None

    def call(self, callback: Callable[[], None]) -> None:
        """Have the loop call back in its next turn; never, if it is closed.

        If this raises, or the callback does, that may be called once more.
        """
        self._calls.append(callback)
        if self._is_calling:
            try:
                self._loop.call_soon_threadsafe(self._call_all)
            except RecursionError:
                raise
            except RuntimeError:
                # The loop is closed.
                pass
        else:
            os.eventfd_write(self._number, 1)

    def _read(self) -> None:
        try:
            # First: who comes after the file was read must not write into it.
            self._is_calling = True
            try:  # noqa: SIM105 - `suppress` is three calls more for a lone item
                os.eventfd_read(self._number)
            except BlockingIOError:
                # It had been another loop's, whose thread was late.
                pass
            self._call_all()
        except BaseException:
            os.eventfd_write(self._number, 1)
            raise
        finally:
            self._is_calling = False

    def _call_all(self) -> None:
        calls = self._calls
        try:
            # Whoever comes meanwhile has the loop woken again.
            for _ in range(len(calls)):
                if not calls:
                    break
                first = calls[0]
                first()
                # Not before it has returned: it must not be lost if a signal handler
                # raises. A loop that it ran inside of itself may have done this.
                if calls and calls[0] is first:
                    del calls[0]
        except BaseException:
            # One that always raises must not keep the others from being called.
            calls.rotate(-1)
            self._loop.call_soon(self._call_all)
            raise

    def _leave_spare(self) -> None:
        # A child that was forked meanwhile would read what its parent's loop waits for.
        if self._process == os.getpid():
            _spare.append(self._number)


def _is_woken_by_files(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it is asyncio's, or a subclass that doesn't change how it is woken."""
    kind, base = type(loop), asyncio.SelectorEventLoop
    # With `select` a file's number may be too high, which ends the loop.
    selector = getattr(loop, "_selector", None)
    if not isinstance(selector, getattr(selectors, "EpollSelector", ())):
        return False
    return isinstance(loop, base) and all(
        getattr(kind, name, None) is getattr(base, name, None)
        # Of a loop in virtual time a file would have to be known as one for calls.
        for name in ("call_soon_threadsafe", "_write_to_self", "time")
    )


def _leave_to_parent() -> None:
    while _spare:
        os.close(_spare.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
