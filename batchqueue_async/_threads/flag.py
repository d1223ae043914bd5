"""Something that happens once, and that threads wait for."""

from __future__ import annotations

import threading

# An interrupted waiter may keep the lock; the others notice within this time.
_SLICE = 0.25


class Flag:
    """As `threading.Event`, but a Ctrl-C leaves its `wait` as itself."""

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        # Held until it is set.
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let all who wait go on; called by one thread, and again it does nothing."""
        if not self.is_set:
            self.is_set = True
            self._lock.release()

    def wait(self, seconds: float) -> None:
        """Wait for a while; the caller looks at it again afterwards."""
        if not self.is_set and self._lock.acquire(timeout=min(seconds, _SLICE)):
            self._lock.release()
