"""The lock that a loop and other threads share: tried again and again, not blocked on.

A thread that blocks on a lock is woken at each release, and whoever released it pays
for that with a system call. Under contention there is always one that blocks, so that
this would never end (a lock convoy): four threads together would get five times less
done than one. A thread that sleeps for a moment costs the others nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class RLock:
        def acquire(self, blocking: bool = True) -> bool: ...  # noqa: FBT001, FBT002
        def release(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...
        def _at_fork_reinit(self) -> None: ...

else:
    from _thread import RLock

PAUSE = 50e-6
"""Seconds between two tries; the system makes 0.1 ms of it."""


class Guard:
    """Reentrant: a `__del__` or a signal handler may produce anywhere.

    Ctrl-C can't leave it locked. It is raised after a call or where a Python function
    begins, so `__exit__` is the C method itself, and `__enter__` releases the lock if
    it is cut short.
    """

    __slots__ = ("__exit__", "lock")

    __exit__: Callable[..., None]

    def __init__(self) -> None:
        # No subclass of it: that would make each of its calls a sixth slower.
        self.lock = RLock()
        self.__exit__ = self.lock.__exit__

    def __enter__(self) -> bool:
        lock = self.lock
        try:
            while not lock.acquire(False):  # noqa: FBT003
                time.sleep(PAUSE)
        except BaseException:
            # If it is owned, this call has acquired it: the owner is never refused.
            if lock._is_owned():  # noqa: SLF001
                lock.release()
            raise
        return True

    def free(self) -> None:
        """Free it in a forked child, unless the thread that forked holds it."""
        if not self.is_mine:
            self.lock._at_fork_reinit()  # noqa: SLF001

    @property
    def is_mine(self) -> bool:
        return self.lock._is_owned()  # noqa: SLF001

    @property
    def levels(self) -> int:
        if not self.is_mine:
            return 0
        # The only place that tells it on every Python 3.11, and hardly ever asked for.
        return int(repr(self.lock).partition("count=")[2].split()[0])
