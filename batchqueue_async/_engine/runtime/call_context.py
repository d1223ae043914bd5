"""Knows whether code runs inside a handler, also in tasks and threads it started.

A context variable carries a token; the drain task ends the token when the handler has
returned, so that a task which outlives its handler is outside again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar, Token, copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.capacity import Permit
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector
    from batchqueue_async._engine.handlers.handler_lock import HandlerLock

R = TypeVar("R")


class HandlerCall:
    """A call of a handler (or hook, or `on_error`) by one drain task of one queue.

    It begins when it is made.
    """

    __slots__ = ("_reset", "detector", "drain_task", "is_over", "lock", "slot")

    def __init__(
        self,
        detector: DeadlockDetector,
        drain_task: int | None,
        lock: HandlerLock | None,
        slot: Hashable,
    ) -> None:
        # That of the queue whose handler it is.
        self.detector = detector
        # The lock of the handler that is entered, and as what; None for `on_error`.
        self.lock = lock
        self.slot = slot
        # None where no drain task is at work: `on_close`.
        self.drain_task = drain_task
        self.is_over = False
        self._reset: Token[HandlerCall | None] = _inside.set(self)

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
