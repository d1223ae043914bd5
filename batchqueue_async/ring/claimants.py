"""Those who wait for room in a ring."""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol


class Claimant(Protocol):
    """One claim, on the loop or on another thread."""

    n: int
    """How many sequences it wants."""
    high: int | None
    """The highest one that it got; None while it waits."""

    def wake(self) -> None:
        """Let the claimant look again: it was granted, or the ring is closed."""


class LoopClaimant:
    """A claim that waits on the event loop."""

    __slots__ = ("_signal", "high", "n")

    def __init__(self, n: int) -> None:
        self.n = n
        self.high: int | None = None
        self._signal = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """Let the claimant run."""
        if not self._signal.done():
            self._signal.set_result(None)

    async def wait(self) -> None:
        """Wait for `wake`; it comes once."""
        await self._signal


class ThreadClaimant:
    """A claim of another thread, which waits there if it has to."""

    __slots__ = ("_signal", "high", "n")

    def __init__(self, n: int) -> None:
        self.n = n
        self.high: int | None = None

    def line_up(self) -> None:
        """Get ready for the line; few claims have to."""
        # Held until `wake`. A Ctrl-C in `threading.Event` would leave as RuntimeError.
        self._signal = threading.Lock()
        self._signal.acquire()

    def wake(self) -> None:
        """Let the claimant run; called once, and only in the line."""
        self._signal.release()

    def wait(self, seconds: float) -> None:
        """Wait for `wake`, but not for longer than that."""
        self._signal.acquire(timeout=seconds)
