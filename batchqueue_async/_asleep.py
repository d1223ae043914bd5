"""What a task of the engine or of a ring awaits, in place of asyncio's future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Self

# Only one base of a class may have slots, so subclasses list `SLOTS` as their own.
_NO_SLOTS: tuple[str, ...] = ()


class Asleep:
    """What a task awaits until it is woken, in a step that nothing can cut in two.

    A future of asyncio is marked as done first, and schedules its callback second. If
    something is raised in between (a RecursionError, a signal handler's exception), the
    task that awaits it sleeps for ever: no later call wakes it. Here the callback is
    scheduled first, so `wake` either raises or wakes.

    It is future-like, as `asyncio.isfuture` defines that, and has what a task needs of
    one. Each wait makes one, and a subclass of Future would cost three times as much.
    """

    __slots__ = _NO_SLOTS
    SLOTS = (
        "_asyncio_future_blocking",
        "_context",
        "_loop",
        "_outcome",
        "_wakeup",
    )

    # Read by tasks where there is no `get_loop`, which would be one call more.
    _loop: asyncio.AbstractEventLoop
    # Part of asyncio's protocol: set when it is yielded to a task, which resets it.
    _asyncio_future_blocking: bool
    _wakeup: Callable[[object], object] | None
    _context: Context | None
    # A cancelled future, if the wait was cancelled.
    _outcome: asyncio.Future[None] | None
    is_woken: bool
    """Whether it need not be awaited any more, or the call back is on its way."""

    result = bool
    """Called by the task that goes on, which ignores what this returns."""

    def __await__(self) -> Generator[Any, None, None]:
        yield self.fall_asleep()

    def fall_asleep(self) -> Self:
        """Return what the task is to wait for; from now on `wake` calls it back.

        A generator-based coroutine may yield this itself, which spares a frame.
        """
        self._asyncio_future_blocking = True
        return self

    def wake(self) -> None:
        """End the wait. If it raises, nothing has changed: it may be called again."""
        if not self.is_woken:
            self._loop.call_soon(self._resume, context=self._context)
            # A second call back would be harmless, a missing one would not.
            self.is_woken = True

    def run_now(self) -> None:
        """Run the task on now, up to its next wait; for callbacks of the loop only."""
        if (context := self._context) is not None:
            # No call in between, after which a signal handler might raise.
            wakeup, self._wakeup = self._wakeup, None
            # The task may run already: a handler may run the loop inside of itself.
            if wakeup is not None:
                context.run(wakeup, self if self._outcome is None else self._outcome)

    def cancel(self, msg: object | None = None) -> bool:
        """Cancel the wait, as the awaiting task's `cancel` does."""
        if self.is_woken:
            self.call_back_again()
            return False
        outcome: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        outcome.cancel(msg)
        self._loop.call_soon(self._resume, context=self._context)
        self.is_woken, self._outcome = True, outcome
        return True

    def call_back_again(self) -> None:
        """Where it was woken: a signal handler may have raised in place of its call."""
        if self.is_woken:
            self._loop.call_soon(self._resume, context=self._context)

    def add_done_callback(
        self, fn: Callable[[object], object], /, *, context: Context | None = None
    ) -> None:
        """Keep the callback of the task that awaits it; asyncio calls this once."""
        self._wakeup, self._context = fn, context

    def _resume(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup(self if self._outcome is None else self._outcome)


class Sleeper(Asleep):
    """One wait of a task."""

    __slots__ = (*Asleep.SLOTS, "is_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = self.is_woken = False
        self._wakeup = self._context = self._outcome = None
