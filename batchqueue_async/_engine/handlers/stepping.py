"""Runs a handler's coroutine step by step: from one wait to the next.

A step holds the loop, so a long one is told; and the first wait is the moment from
which somebody has to look after a call that may not come back.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

from batchqueue_async._engine.runtime.call_context import HandlerCall


@coroutine
def in_steps(
    running: Coroutine[Any, Any, object], call: HandlerCall
) -> Generator[Any, Any, object]:
    """Await a coroutine, as `await` itself does, and note the steps in its call."""
    call.coroutine = running
    step: Callable[[Any], Any] = running.send
    argument: Any = None
    while True:
        try:
            waits_for = step(argument)
        except StopIteration as end:
            return end.value
        finally:
            # What was thrown in has this frame in its traceback.
            argument = None
        call.waits()
        try:
            argument = yield waits_for
            step = running.send
        except GeneratorExit:
            running.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - the coroutine's
            argument, step = thrown, running.throw
        call.begin_step()
