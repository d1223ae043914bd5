"""The lock that a loop and other threads share: tried again and again, not blocked on.

A thread that blocks on a lock is woken at each release, and whoever released it pays
for that with a system call. Under contention there is always one that blocks, so that
this would never end (a lock convoy): four threads together would get five times less
done than one. A thread that sleeps for a moment costs the others nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class RLock:
        def acquire(self, blocking: bool = True) -> bool: ...  # noqa: FBT001, FBT002
        def release(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...

else:
    from _thread import RLock

PAUSE = 50e-6
"""Seconds between two tries; the system makes 0.1 ms of it."""


class Guard(RLock):
    """Reentrant: a `__del__` or a signal handler may produce anywhere.

    Ctrl-C can't leak it. It strikes after a call or where a Python function begins, so
    `__exit__` stays the C method, and `__enter__` gives back what it had no time to
    return.
    """

    def __enter__(self) -> bool:
        try:
            while not self.acquire(False):  # noqa: FBT003
                time.sleep(PAUSE)
        except BaseException:
            # Owned before, too, it was not refused: it has been acquired once more.
            if self._is_owned():
                self.release()
            raise
        return True

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return self._is_owned()

    @property
    def levels(self) -> int:
        """How often the calling thread holds it."""
        # The only place that tells it on every Python 3.11, and hardly ever asked for.
        return int(repr(self).partition("count=")[2].split()[0]) if self.is_mine else 0
