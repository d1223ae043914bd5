"""A loop that runs one ready callback at a time, whichever its user picks.

What lies between a wake-up and the step that it wakes stays open in this way, and any
order of ready tasks can be had. Time moves only when it is told to.
"""

import asyncio
import heapq


class SteppingLoop(asyncio.SelectorEventLoop):
    """Never `run`: between `enter` and `leave` it passes for the running loop."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def enter(self) -> None:
        asyncio._set_running_loop(self)

    def leave(self) -> None:
        asyncio._set_running_loop(None)
        self.close()

    @property
    def ready(self) -> int:
        """How many callbacks could run."""
        return len(self._ready)  # type: ignore[attr-defined]

    @property
    def has_timer(self) -> bool:
        return bool(self._timers())

    def step(self, index: int = 0) -> None:
        """Run one of the ready callbacks, by default the one that asyncio would."""
        ready = self._ready  # type: ignore[attr-defined]
        handle = ready[index]
        del ready[index]
        if not handle.cancelled():
            handle._run()

    def run_dry(self, most: int = 2000) -> None:
        """Run all that is ready, and what becomes ready by it."""
        for _ in range(most):
            if not self.ready:
                return
            self.step()
        message = f"still busy after {most} steps"
        raise AssertionError(message)

    def skip_to_next_timer(self) -> None:
        timers = self._timers()
        timer = heapq.heappop(timers)
        timer._scheduled = False  # type: ignore[attr-defined]
        self.now = max(self.now, timer.when())
        self._ready.append(timer)  # type: ignore[attr-defined]

    def _timers(self) -> list[asyncio.TimerHandle]:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        return timers
