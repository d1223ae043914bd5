"""Knows whether code runs inside a handler, also in tasks and threads it started.

A context variable carries a token; the drain task ends the token when the handler has
returned, so that a task which outlives its handler is outside again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token, copy_context
from types import TracebackType
from typing import Self, TypeVar

R = TypeVar("R")


class Inside:
    """A call of a handler (or hook, or `on_error`) by one drain task of one queue.

    It begins when it is made.
    """

    __slots__ = ("_reset", "capacity", "drain_task", "gate", "is_over", "queue")

    def __init__(
        self,
        queue: object,
        drain_task: int | None,
        capacity: object | None,
        gate: object | None,
    ) -> None:
        self.queue = queue
        # The gate of the handler that is entered; None for `on_error`.
        self.gate = gate
        # The shared drain capacity of which the call holds a permit.
        self.capacity = capacity
        # None where no drain task is at work: `on_close`.
        self.drain_task = drain_task
        self.is_over = False
        self._reset: Token[Inside | None] = _inside.set(self)

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


_inside: ContextVar[Inside | None] = ContextVar("inside_handler", default=None)


def mark() -> object:
    """Return what is the same for all that one call runs, and else is another thing."""
    return _inside.get()


def current_call() -> Inside | None:
    """Return the call of any queue's handler that the caller is part of."""
    call = _inside.get()
    return None if call is None or call.is_over else call


def handler_call(queue: object) -> Inside | None:
    """Return the call of one of this queue's handlers that the caller is part of."""
    call = current_call()
    return call if call is not None and call.queue is queue else None


def outside(function: Callable[..., R], *args: object) -> R:
    """Call `function` as if from outside of any handler, else in this context."""
    context = copy_context()
    context.run(_inside.set, None)
    return context.run(function, *args)
