"""Which calls of a queue's handlers run now, and since when; slow ones are logged.

There is no timer per call: the first that waits sets one for the queue. It is set anew
for the next call that may become slow, and cancelled at a nap if no call is inside.
Whether a call waits is seen by running its coroutine in steps, which is done for the
first call of a cycle. For all others a callback in the loop's next turn looks, which is
cheaper if there are many. A call that never waits holds up the loop, timers included:
it is logged when it lets go of the loop.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterator
from time import monotonic
from traceback import FrameSummary
from types import coroutine
from typing import Any, Final

from batchqueue_async._engine.handlers.handler_lock_and_call import (
    HELD_UP,
    HandlerCall,
)
from batchqueue_async._log import RepeatedFailures, logger
from batchqueue_async._loop_time import ThreadUse
from batchqueue_async._results import await_returned, is_future

# A timer may fire a tick of the loop's clock early.
_EARLY: Final = 0.002
_HELD_UP_PERIOD: Final = 60.0


@coroutine
def in_steps(
    running: Coroutine[Any, Any, object],
    call: HandlerCall,
    waits_for: object,
) -> Generator[Any, Any, object]:
    """Await a coroutine, as `await` itself does, and note the steps in its call.

    It begins with the first wait. It makes a quick call a tenth slower, so not all are
    run like this: hooks are, the first call of a cycle, and a handler that took long
    the last time.
    """
    while True:
        call.end_step_to_wait()
        step: Callable[[Any], Any] = running.send
        try:
            argument = yield waits_for
        except GeneratorExit:
            running.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - the coroutine's
            argument, step = thrown, running.throw
        call.begin_step()
        try:
            waits_for = step(argument)
        except StopIteration as end:
            return end.value
        finally:
            # An error that was thrown in keeps this frame by its traceback, and so what
            # is here.
            argument = None
            if monotonic() - call.step_began > HELD_UP:
                call.end_step()


async def finish(call: HandlerCall, returned: object) -> None:
    """Await what its coroutine has returned, if that is a future."""
    if is_future(returned):
        call.end_step()
        call.end_step_to_wait()
    await await_returned(returned)


class RunningCalls:
    """The calls of one queue's handlers and hooks, from their begin to their end."""

    __slots__ = (
        "_failures",
        "_name",
        "clock",
        "inside",
        "is_asked",
        "is_first",
        "left_behind",
        "slow",
        "thread",
        "timer",
    )

    in_steps = staticmethod(in_steps)
    finish = staticmethod(finish)

    def __init__(
        self, name: str, slow: float | None, failures: RepeatedFailures
    ) -> None:
        self._name = name
        self._failures = failures
        # Seconds after which a call is slow; None if slow calls are not logged.
        self.slow = slow
        # The loop's clock, by which calls note when they began.
        self.clock: Callable[[], float] = monotonic
        self.thread = ThreadUse()
        # The calls that run, and whether each was logged as slow.
        self.inside: dict[HandlerCall, bool] = {}
        # Those of them without which their drain tasks go on: they can't be stopped.
        self.left_behind: tuple[HandlerCall, ...] = ()
        self.timer: asyncio.TimerHandle | None = None
        # Whether the loop's next turn looks which calls run, or need not be asked to.
        self.is_asked = slow is None
        # Whether the next call is the first one of a cycle.
        self.is_first = True

    def ask(self) -> None:
        """Have the loop's next turn look which calls run."""
        asyncio.get_running_loop().call_soon(self._look_around)
        self.is_asked = True

    def watch(self, call: HandlerCall) -> None:
        """Set the timer for a call that waits, to be logged when it becomes slow."""
        if self.timer is None and self.slow is not None:
            self._look_at(call.began + self.slow)

    def end_those_of(self, drain_task: int) -> None:
        """End the calls that a drain task waits for: it was cut off in one of them."""
        for call in list(self.inside):
            if call.is_of(drain_task) and call not in self.left_behind:
                call.end()

    def stop_idle_timer(self) -> None:
        if self.timer is not None and not self.inside:
            self.timer.cancel()
            self.timer, self.is_asked = None, False

    def stop(self) -> None:
        """Set no timer any more: the queue has ended, whatever calls still run."""
        self.slow, self.is_asked = None, True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def seconds_inside(self) -> dict[object, float]:
        """Return, by registration, for how long the longest of its calls has run."""
        now, seconds = self.clock(), dict[object, float]()
        # A copy: other threads may ask.
        for call in list(self.inside):
            known = seconds.get(call.registration, 0.0)
            seconds[call.registration] = max(known, now - call.began)
        return seconds

    def held_up(self, call: HandlerCall, seconds: float) -> None:
        """Log that a call held up the loop for so long, unless it had to wait."""
        if asyncio._get_running_loop() is None:  # noqa: SLF001
            # The coroutine is collected, on whatever thread that happens.
            return
        computed, blocked = self.thread.split(seconds)
        if computed + blocked <= HELD_UP:
            # It waited for a processor, or for the interpreter's lock.
            return
        self._failures.warning(
            "%s: %s held up the event loop for %.2f s, %.2f s of them computing: "
            "nothing else ran meanwhile",
            self._name,
            call.label,
            computed + blocked,
            computed,
            title=f"{self._name}: {call.label} held up the event loop",
            error=f"for {computed + blocked:.2f} s",
            period=_HELD_UP_PERIOD,
            queue=self._name,
            handler=call.label,
            seconds=computed + blocked,
        )

    def _look_around(self) -> None:
        if self.inside:
            # No call need ask while there is a timer.
            self.watch(next(iter(self.inside)))
        self.is_asked = self.timer is not None

    def _look_at(self, when: float) -> None:
        loop = asyncio.get_running_loop()
        # Not `call_at`: uvloop's clock may be another one.
        self.timer = loop.call_later(max(0.0, when - self.clock()), self._look)
        self.is_asked = True

    def _look(self) -> None:
        self.timer, self.is_asked = None, False
        if self.slow is None:
            return
        now = self.clock()
        for call, is_told in list(self.inside.items()):
            if not is_told and now - call.began >= self.slow - _EARLY:
                self.inside[call] = True
                self._tell(call, now - call.began)
        ahead = [call.began for call, is_told in self.inside.items() if not is_told]
        if ahead:
            self._look_at(min(ahead) + self.slow)

    def _tell(self, call: HandlerCall, seconds: float) -> None:
        stack = "".join(traceback.format_list(list(_frames(call.coroutine))))
        logger.warning(
            "%s: %s has been inside for %.1f s%s",
            self._name,
            call.label,
            seconds,
            f", at:\n{stack}" if stack else "",
            queue=self._name,
            handler=call.label,
            seconds=seconds,
        )


def _frames(awaited: object) -> Iterator[FrameSummary]:
    """Yield where a coroutine waits: its own frame, and those of what it awaits."""
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                code = frame.f_code
                yield FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
        awaited = next(
            (
                getattr(awaited, name)
                for name in ("cr_await", "gi_yieldfrom", "ag_await")
                if hasattr(awaited, name)
            ),
            None,
        )
