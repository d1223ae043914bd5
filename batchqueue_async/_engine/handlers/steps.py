"""A call goes from wait to wait in steps: a step holds the loop, a long one is told."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import monotonic
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.handler_call import HandlerCall

HELD_UP: Final = 0.1
"""Seconds after which it is told that a handler has let nothing else run."""


@coroutine
def in_steps(
    running: Coroutine[Any, Any, object],
    call: HandlerCall,
    waits_for: object,
) -> Generator[Any, Any, None]:
    """Await a coroutine, as `await` itself does, and note the steps in its call.

    From its first wait on. It costs a quick call a tenth of its price, so not all are
    run like this: hooks are, the first call of a cycle, and a handler that took long
    the last time.
    """
    while True:
        call.waits()
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
        except StopIteration:
            return
        finally:
            # What was thrown in has this frame in its traceback.
            argument = None
            if monotonic() - call.step_began > HELD_UP:
                call.end_step()
