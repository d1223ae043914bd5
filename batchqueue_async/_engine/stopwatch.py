"""Measures how long a handler takes, on whatever loop."""

from __future__ import annotations

import asyncio
import time


class Stopwatch:
    """Runs from its making on."""

    __slots__ = ("_clock_started", "_loop", "_loop_started")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_started = self._loop.time()
        self._clock_started = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since it was made.

        uvloop's clock stands still within one turn, and a test's virtual clock is not
        the machine's: the larger of both is the time that passed.
        """
        return max(
            self._loop.time() - self._loop_started,
            time.perf_counter() - self._clock_started,
        )
