"""Runs a handler's coroutine step by step: from one wait to the next.

A step holds the loop, so a long one is told. It costs a quick call a tenth of its
price, so not all are run like this: see `RunningCalls`. Hooks are, and a handler that
took long the last time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import monotonic
from types import coroutine
from typing import Any

from batchqueue_async._engine.handlers.handler_call import HandlerCall
from batchqueue_async._engine.handlers.running_calls import HELD_UP


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
            if monotonic() - call.step_began > HELD_UP:
                call.end_step()
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
