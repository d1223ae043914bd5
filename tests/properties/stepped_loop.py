"""An event loop that runs nothing by itself: whose turn it is, its user decides.

One turn is one ready callback; of a task it is one `coro.send(None)`, up to its next
wait. So the window between a wake-up and the step that it wakes stays open for as long
as a test likes (reliability.md 1.5: a loop that runs inside of a rule hides it).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class SteppedLoop(asyncio.BaseEventLoop):
    """Callbacks and timers in virtual time, run one at a time and in any order."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-6
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._now

    def open(self) -> None:
        """Be the running loop, outside of any callback, too."""
        asyncio._set_running_loop(self)

    def close(self) -> None:
        asyncio._set_running_loop(None)
        super().close()

    @property
    def ready(self) -> int:
        """How many callbacks could run now."""
        for handle in [each for each in self._ready if each.cancelled()]:
            self._ready.remove(handle)
        return len(self._ready)

    @property
    def next_timer(self) -> float | None:
        """When the next timer fires."""
        timers = [each.when() for each in self._scheduled if not each.cancelled()]
        return min(timers, default=None)

    def step(self, choice: int = 0) -> None:
        """Run one of the ready callbacks; 0 is the one that has waited longest."""
        if count := self.ready:
            handle = self._ready[choice % count]
            del self._ready[choice % count]
            handle._run()

    def begin(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task and run it up to its first wait."""
        task = self.create_task(call, context=Context())
        if self.get_task_factory() is None:
            self.step(-1)  # an eager one has begun
        return task

    def advance(self, until: float) -> None:
        """Let it be `until`; the timers that are due by then become ready, in order."""
        due = [
            each
            for each in self._scheduled
            if not each.cancelled() and each.when() <= until
        ]
        for timer in sorted(due, key=asyncio.TimerHandle.when):
            self._scheduled.remove(timer)
            timer._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(timer)
        self._now = max(self._now, until)

    def run_until(self, is_done: Callable[[], bool], patience: float) -> bool:
        """Run first come, first served, for so many virtual seconds at most.

        Returns:
            Whether it is done; False also if nothing is left to run.
        """
        until = self._now + patience
        for _ in range(10_000):
            if is_done():
                return True
            if not self.ready:
                timer = self.next_timer
                if timer is None or timer > until:
                    return False
                self.advance(timer)
            self.step()
        return False

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError

    def _write_to_self(self) -> None:
        """No selector sleeps, so none has to be woken."""
