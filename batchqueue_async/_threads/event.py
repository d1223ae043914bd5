"""An event that threads wait for."""

from __future__ import annotations

import threading
from contextlib import suppress


class ThreadEvent:
    """As `threading.Event`, but a Ctrl-C leaves its `wait` as `KeyboardInterrupt`.

    The standard one takes and releases a lock in Python code: if a Ctrl-C comes in
    between, it raises `RuntimeError: release unlocked lock` instead.
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
        """Make later calls wait again; only for an event that one thread waits for."""
        self.is_set = False
        self._lock.acquire(blocking=False)

    def wait(self, seconds: float) -> None:
        """Wait for that long at most; the caller looks afterwards whether it is set."""
        if self.is_set:
            return
        try:
            self._lock.acquire(timeout=seconds)
        finally:
            # An interrupted `acquire` may have the lock, for which others wait, too.
            self._open()

    def _open(self) -> None:
        if self.is_set:
            with suppress(RuntimeError):  # It is open already.
                self._lock.release()
