"""How long a handler itself has kept its loop's thread, and what it waited for there.

A step that takes long may have computed or blocked, which is the handler's own doing.
Or its thread had to wait: for a processor, on a busy machine, or for the interpreter's
lock, which other threads had. From processor time alone that can't be told: who blocks
uses none either.

- How long a thread could run and had no processor is counted by Linux.
- Who waits for the interpreter's lock wakes up after each switch interval, to ask for
  it: so that took no longer than its waits times the interval, and other threads have
  used processor time. Who blocks wakes up once.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from typing import Final, NamedTuple

_ATTRIBUTE = "_batchqueue_async_thread_use"
_OFTEN: Final = 0.01
"""Seconds between two samples: a step's use is known as exactly as that."""
_SHARE: Final = 0.02
"""Who keeps the interpreter's lock gets so much of a processor, however busy it is."""


class Use(NamedTuple):
    """What a thread, and its process, have used up to now."""

    own: float
    """Seconds of a processor."""
    process: float
    """The same, of all threads."""
    waits: float
    """How often it has let go of its processor to wait; inf if nobody counts."""
    queued: float
    """Seconds for which it could run, and had no processor."""


class ThreadUse:
    """What the thread of one loop has used, sampled where steps of handlers begin."""

    __slots__ = ("_sample", "due")

    def __init__(self) -> None:
        # When the sample is too old, by the machine's clock.
        self.due = -math.inf
        self._sample = Use(0.0, 0.0, 0.0, 0.0)

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> ThreadUse:
        """Return the loop's; the first call makes it."""
        use = getattr(loop, _ATTRIBUTE, None)
        if use is None:
            use = ThreadUse()
            setattr(loop, _ATTRIBUTE, use)
        assert isinstance(use, ThreadUse)
        return use

    def look(self, now: float) -> None:
        """Take a sample. It costs some microseconds, so it is taken when due."""
        self._sample = sample()
        self.due = now + _OFTEN

    def split(self, seconds: float) -> tuple[float, float]:
        """Return how long a step that ends now has computed, and how long blocked.

        Args:
            seconds: That it took in all; it began after the sample was due.
        """
        before, now = self._sample, sample()
        own = min(seconds, now.own - before.own)
        blocked = seconds - own - (now.queued - before.queued)
        others = (now.process - before.process) - (now.own - before.own)
        if others > _SHARE * blocked > 0:
            blocked -= (now.waits - before.waits) * sys.getswitchinterval()
        return own, max(0.0, blocked)


if sys.platform == "linux":
    from resource import RUSAGE_THREAD, getrusage

    def sample() -> Use:
        """Return what the calling thread has used."""
        waits = getrusage(RUSAGE_THREAD).ru_nvcsw
        return Use(time.thread_time(), time.process_time(), waits, _queued())

    def _queued() -> float:
        try:
            with open("/proc/thread-self/schedstat", "rb") as told:  # noqa: PTH123
                return int(told.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            # The kernel was built without it, or nothing can be opened.
            return 0.0

else:

    def sample() -> Use:
        """Return what the calling thread has used, as far as it is known."""
        # So that any wait may have been for the lock, where others compute.
        return Use(time.thread_time(), time.process_time(), time.monotonic() * 1e9, 0.0)
