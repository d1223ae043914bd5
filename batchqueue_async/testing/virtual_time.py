"""Virtual time: a loop whose clock jumps to the next timer, and fails when stuck."""

import asyncio
import selectors
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from math import inf, ulp
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple

from batchqueue_async._threads.clock import sleep
from batchqueue_async._validation import require_instance, require_int

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Ready = list[tuple[selectors.SelectorKey, int]]

TICKS = 1_000_000
"""The clock counts microseconds: sums of short waits then come out even."""

OUTSIDE_GRACE = 10.0
"""Real seconds granted to a thread or socket to wake a loop that is stuck."""


class Deadlock(AssertionError):
    """Nothing is ready and no timer is set: whatever is awaited never comes.

    Raised out of the loop, not into a task: no code under test can swallow it. Its
    message names the tasks that wait, and where.
    """


class _Selector(selectors.DefaultSelector):
    """Asks the loop what to do instead of waiting."""

    def __init__(self, instead: Callable[[float | None], Ready]) -> None:
        super().__init__()
        self._instead = instead

    def select(self, timeout: float | None = None) -> Ready:
        return self._instead(timeout)

    def wait(self, timeout: float | None) -> Ready:
        """Wait for sockets and for calls from threads, in real time."""
        return super().select(timeout)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time that raises `Deadlock` instead of hanging.

    It starts at 0. When nothing is ready the clock jumps to the next timer, so an hour
    passes at once, and what happens after how many seconds is exact. If there is no
    timer either, nothing will ever happen: that raises `Deadlock`, after 10 real
    seconds if a thread or a socket could still wake the loop. Timers that go on for
    ever, such as those of an `on_idle`, are never stuck: `asyncio.timeout` ends a wait.

    A function in an executor (`asyncio.to_thread`) takes real time, and the clock goes
    along with it. It can't see other threads and sockets at work: while they are, its
    timers fire far too early. Tests of those need asyncio's own loop.
    """

    def __init__(self) -> None:
        self._waiting = _Selector(self._select)
        self._ticks = 0
        self._in_executors: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()
        super().__init__(self._waiting)
        # With asyncio's nanosecond a timer that is due could look as if it weren't.
        self._clock_resolution = 1 / TICKS

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._ticks / TICKS

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Like asyncio's; time is real until `func` has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._in_executors.add(future)
        return future

    def get_debug(self) -> bool:
        """Return False, so that futures and handles don't record a stack each.

        Recording takes most of a suite's time. The loop's own checks, and asyncio's
        warning of slow callbacks, go by what `set_debug` was given.
        """
        return False

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait without `timeout`, which in virtual time ends before threads do."""
        del timeout
        await super().shutdown_default_executor()

    def _select(self, timeout: float | None) -> Ready:
        ready = self._waiting.wait(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None and (timers := vars(self)["_scheduled"]):
            # asyncio goes to a timer that is further away than a day in steps.
            timeout = max(timeout, timers[0].when() - self.time())
        if timeout is None or timeout * TICKS == inf:
            return self._wait_for_outside()
        if any(not future.done() for future in self._in_executors):
            ready = self._waiting.wait(timeout)
        if not ready:
            # One tick at least: less than half of one would never be over.
            self._ticks += round(timeout * TICKS) or 1
            # After centuries floats are further apart than that.
            self._clock_resolution = max(1 / TICKS, ulp(self.time()))
        return ready

    def _wait_for_outside(self) -> Ready:
        sockets = len(self._waiting.get_map()) - 1  # Less the loop's own self-pipe.
        may_be_woken = sockets > 0 or threading.active_count() > 1
        # Looked even with no grace: a thread may have called and ended meanwhile.
        ready = self._waiting.wait(OUTSIDE_GRACE if may_be_woken else 0)
        if not ready:
            waiting = sorted(_where(task) for task in asyncio.all_tasks(self))
            message = f"nothing is ready, no timer is set; waiting: {waiting or 'none'}"
            raise Deadlock(message)
        return ready


def _where(task: asyncio.Task[Any]) -> str:
    """The task's name and the innermost line, but for asyncio's own, it waits in."""
    place = ""
    for frame in frames_of(task.get_coro()):
        file = Path(frame.f_code.co_filename)
        if file.parent.name != "asyncio":
            place = f" at {file.name}:{frame.f_lineno}"
    return task.get_name() + place


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` like `asyncio.run`, in virtual time; return what it returns.

    Raises what `main` raises, and `Deadlock` if it can never end; `RuntimeError` where
    a loop runs already.
    """
    require_instance("main", main, Coroutine, "a coroutine, as in run_virtual(main())")
    if asyncio._get_running_loop() is not None:  # noqa: SLF001
        # Else Python would warn that it was never awaited, long after this.
        main.close()
        msg = (
            "run_virtual starts a loop of its own, and one runs here already: call it "
            "in a plain `def` test, or have that loop be a VirtualTimeLoop"
        )
        raise RuntimeError(msg)
    with asyncio.Runner(debug=True, loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


async def settle(max_cycles: int = 10_000) -> None:
    """Let every task run until all of them wait for a timer or for each other.

    For the virtual loop: there, nothing outside the loop can make a task ready. Raises
    `AssertionError` if they are still busy after `max_cycles` turns of the loop.

    To wait until items are handled, `await queue.flush()` instead.
    """
    require_int("max_cycles", max_cycles, at_least=1)
    loop = asyncio.get_running_loop()
    ready = getattr(loop, "_ready", None)  # There is no other way to look.
    if ready is None:
        msg = f"settle is for a VirtualTimeLoop, and here runs a {type(loop)!r}"
        raise RuntimeError(msg)
    for _ in range(max_cycles):
        await sleep(0)
        if not ready:
            return
    message = f"the loop is still busy after {max_cycles} cycles"
    raise AssertionError(message)


def frames_of(coroutine: Any) -> Iterator[FrameType]:  # noqa: ANN401 - of any kind
    """Yield the frames of a coroutine and of those that it awaits, outermost first."""
    while coroutine is not None:
        # A generator may stand for a coroutine.
        frame = getattr(coroutine, "cr_frame", None)
        frame = frame or getattr(coroutine, "gi_frame", None)
        if frame is None:
            return
        yield frame
        awaited = getattr(coroutine, "cr_await", None)
        coroutine = awaited or getattr(coroutine, "gi_yieldfrom", None)
