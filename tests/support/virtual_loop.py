"""Virtual time: a loop whose clock jumps to the next timer, and fails when stuck.

looptime moves the clock. Left alone it waits for ever when nothing at all is
scheduled, which is what a lost wake-up looks like: here that raises `Deadlock`.

It can't see threads and sockets at work: while they are, its timers fire far too
early. Tests that need them are marked `real_time`.
"""

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import looptime

from tests.support.awaits import frames_of

T = TypeVar("T")

OUTSIDE_GRACE = 10.0
"""Real seconds granted to a thread or socket to wake a loop that is stuck."""


class Deadlock(AssertionError):
    """Nothing is ready and no timer is set: whatever is awaited never comes.

    Raised out of the loop, not into a task: no code under test can swallow it.
    """


class VirtualTimeLoop(looptime.LoopTimeEventLoop, asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time that raises `Deadlock` instead of hanging."""

    def __init__(self) -> None:
        # The empty cycles before each jump are for code that needs sockets.
        super().__init__(noop_cycles=0)
        # looptime counts microseconds. At asyncio's nanosecond, a timer that is due
        # would look as if it weren't once the clock is at 10**7, and spin for ever.
        self._clock_resolution = 1e-6
        self._jump = self._selector.select
        self._selector.select = self._select  # type: ignore[method-assign]

    def _select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None:
            return self._jump(timeout)
        grace = OUTSIDE_GRACE if self._may_be_woken_from_outside() else 0.0
        ready = type(self._selector).select(self._selector, grace)
        if not ready:
            waiting = sorted(_where(task) for task in asyncio.all_tasks(self))
            message = f"nothing is ready, no timer is set; waiting: {waiting or 'none'}"
            raise Deadlock(message)
        return ready

    def get_debug(self) -> bool:
        """Say no to futures and handles, which would note a stack each.

        That took most of the suite's time. The loop's own checks go by `_debug`.
        """
        return False

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait without `timeout`: it would be over before the threads are."""
        await super().shutdown_default_executor()

    def _may_be_woken_from_outside(self) -> bool:
        sockets = len(self._selector.get_map()) - 1  # less the loop's own self-pipe
        return sockets > 0 or threading.active_count() > 1


def _where(task: asyncio.Task[Any]) -> str:
    """The task's name and the innermost line, but for asyncio's own, it waits in."""
    place = ""
    for frame in frames_of(task.get_coro()):
        file = Path(frame.f_code.co_filename)
        if file.parent.name != "asyncio":
            place = f" at {file.name}:{frame.f_lineno}"
    return task.get_name() + place


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` like `asyncio.run`, in virtual time. For use in sync tests."""
    with asyncio.Runner(debug=True, loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
