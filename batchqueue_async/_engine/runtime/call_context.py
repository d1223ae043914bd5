"""Knows whether code runs inside a handler, also in tasks and threads it started.

A context variable carries a token; the drain task ends the token when the handler has
returned, so that a task which outlives its handler is outside again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Hashable
from contextvars import ContextVar, Token, copy_context
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.capacity import Permit
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector
    from batchqueue_async._engine.handlers.handler_lock import HandlerLock
    from batchqueue_async._engine.handlers.registry import Registration

R = TypeVar("R")

HELD_UP: Final = 0.1
"""Seconds after which it is told that a handler has let nothing else run."""


class HandlerCall:
    """A call of a handler (or hook, or `on_error`) by one drain task of one queue.

    It begins when it is made.
    """

    __slots__ = (
        "_reset",
        "began",
        "coroutine",
        "detector",
        "drain_task",
        "hook",
        "is_over",
        "lock",
        "registration",
        "slot",
        "step_began",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - by position: one for each batch
        self,
        detector: DeadlockDetector,
        drain_task: int | None,
        lock: HandlerLock | None,
        slot: Hashable,
        registration: Registration | None,
        hook: str = "",
    ) -> None:
        # That of the queue whose handler it is.
        self.detector = detector
        # The lock of the handler that is entered, and as what; None for `on_error`.
        self.lock = lock
        self.slot = slot
        # None where no drain task is at work: `on_close`.
        self.drain_task = drain_task
        self.is_over = False
        # Whose it is, None for the queue's own; and what is called: "" for `consume`.
        self.registration = registration
        self.hook = hook
        # What it is run by, if that is known.
        self.coroutine: Coroutine[Any, Any, object] | None = None
        self._reset: Token[HandlerCall | None] = _inside.set(self)
        calls = detector.calls
        calls.inside[self] = False
        self.began = began = calls.clock()
        # Since when it has held the loop; inf while it waits. By the machine's clock:
        # a virtual one stands still meanwhile.
        self.step_began = began if calls.clock is monotonic else monotonic()

    @property
    def label(self) -> str:
        """What is called, in logs."""
        if self.registration is None:
            return self.hook
        of = f"{self.hook} of " if self.hook else ""
        return f"{of}{self.registration.label}"

    def waits(self) -> None:
        """It lets the loop go, to await something."""
        self.step_began = math.inf
        calls = self.detector.calls
        if calls.timer is None:
            calls.watch(self)

    def _took_long(self) -> None:
        if self.coroutine is None:
            self.end_step()
        elif self.registration is not None:
            # It may have waited: next time it is looked at step by step.
            self.registration.is_trusted = False

    def begin_step(self) -> None:
        """It goes on, and holds the loop."""
        self.step_began = monotonic()

    def end_step(self) -> None:
        """What it did since its begin, or its last wait, held the loop."""
        seconds = monotonic() - self.step_began
        self.step_began = math.inf
        if seconds > HELD_UP:
            self.detector.calls.held_up(self, seconds)

    @property
    def permit(self) -> Permit | None:
        """What its drain task holds for it, where queues share drain tasks."""
        return None if self.drain_task is None else self.detector.permit

    @property
    def is_waiting(self) -> bool:
        """Whether any task or thread of it waits for a queue."""
        # Again if another thread changed them meanwhile; the first one nearly always
        # is the call's.
        while True:
            try:
                return any(wait.call is self for wait in self.detector.waits)
            except RuntimeError:
                continue

    def end(self) -> None:
        self.is_over = True
        if monotonic() - self.step_began > HELD_UP:
            self._took_long()
        self.detector.calls.inside.pop(self, None)
        if self.drain_task is None:
            # Of a drain task the next nap sees to it.
            self.detector.calls.rest()
        # By hand: `contextlib.suppress` costs more than all the rest here.
        try:  # noqa: SIM105
            _inside.reset(self._reset)
        except ValueError:
            # A coroutine that is thrown away is closed in a strange context.
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class BackgroundCall(HandlerCall):
    """A call that its drain task does not wait for, unless at the handler's lock.

    That is `on_flush`, which runs on a task of its own.
    """

    __slots__ = ()

    @property
    def permit(self) -> None:
        return None


_inside: ContextVar[HandlerCall | None] = ContextVar("inside_handler", default=None)


def mark() -> object:
    """Return a token of the handler call that runs here; None outside of any."""
    return _inside.get()


def current_call() -> HandlerCall | None:
    """Return the call of any queue's handler that the caller is part of."""
    call = _inside.get()
    return None if call is None or call.is_over else call


def handler_call(detector: DeadlockDetector) -> HandlerCall | None:
    """Return the call of one of this queue's handlers that the caller is part of."""
    call = current_call()
    return call if call is not None and call.detector is detector else None


def outside(function: Callable[..., R], *args: object) -> R:
    """Call `function` as if from outside of any handler, else in this context."""
    context = copy_context()
    context.run(_inside.set, None)
    return context.run(function, *args)
