"""Something that happens, and that threads wait for."""

from __future__ import annotations

import threading
from contextlib import suppress


class ThreadEvent:
    """As `threading.Event`, but a Ctrl-C leaves its `wait` as itself.

    The library's takes and gives back a lock in Python code: struck in between, it
    raises `RuntimeError: release unlocked lock` instead.
    """

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        # Held until it is set.
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        self.is_set = True
        self._open()

    def clear(self) -> None:
        """Let those who come wait again; for an event that one thread waits for."""
        self.is_set = False
        self._lock.acquire(blocking=False)

    def wait(self, seconds: float) -> None:
        """Wait for that long at most; the caller looks afterwards at what is so."""
        if self.is_set:
            return
        try:
            self._lock.acquire(timeout=seconds)
        finally:
            # Nobody knows whether an interrupted `acquire` has it: others wait, too.
            self._open()

    def _open(self) -> None:
        if self.is_set:
            with suppress(RuntimeError):  # It is open.
                self._lock.release()
