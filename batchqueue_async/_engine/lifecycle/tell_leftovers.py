"""Reports items that are unhandled at a queue's end, to the log and to `on_error`.

Items stay in the list that these functions get until they have been reported.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.handlers.call_with_timeout import call_on_error
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    EXCLUSIVE,
    HandlerCall,
)
from batchqueue_async._engine.runtime.loop_end import GRACE, cancel_for_good
from batchqueue_async._functions import is_async
from batchqueue_async._log import logger
from batchqueue_async._policies.errors import BatchQueueError

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


# Seconds that `on_error` may take for leftovers, beyond the shutdown's deadline.
_LEFTOVER_TIME = 1.0
_DEAD = "the loop does not run any more"


async def tell_leftovers(parts: Parts, left: list[Any], message: str) -> None:
    """Log leftovers, and give them to `on_error`, which has a second for them.

    If this is cancelled before `on_error` was called, they are in `left` again.
    """
    if not left:
        return
    items, begun, on_error = left.copy(), list[None](), parts.config.on_error
    limit = min(parts.config.handler_timeout or _LEFTOVER_TIME, _LEFTOVER_TIME)
    telling: asyncio.Task[None] | None = None

    async def call() -> None:
        begun.append(None)
        assert on_error is not None
        error = BatchQueueError(message)
        with HandlerCall(parts.detector, None, None, EXCLUSIVE, None, "on_error"):
            # Without a timeout: a task for that could be cancelled before it begins.
            await call_on_error(parts, on_error, items, error, None)

    # No call in between: what is not in `left` is reported, or put back below.
    del left[:]
    try:
        logger.error(message, **_fields(parts, items))
        if on_error is None:
            begun.append(None)
            return
        telling = asyncio.create_task(call())
        _, late = await asyncio.wait({telling}, timeout=limit)
        if late:
            logger.error(
                "%s: on_error did not take them in time",
                parts.name,
                **_fields(parts, items),
            )
            cancel_for_good(telling)
            await asyncio.wait({telling}, timeout=GRACE)
    finally:
        if not begun:
            # One of both tasks was cancelled before `on_error` was called. If it was
            # this one, `telling` is cancelled, too: it would report the items as well.
            if telling is not None:
                telling.cancel()
            left[:0] = items


def tell_leftovers_after_loop(parts: Parts, left: list[Any], message: str) -> None:
    """Do the same after the loop's end, when nothing can be awaited any more."""
    if not left:
        return
    items = left.copy()
    left.clear()
    on_error, fields = parts.config.on_error, _fields(parts, items)
    if on_error is None:
        logger.error(message, **fields)
    elif is_async(on_error):
        says = "%s; on_error is async and is not told: %s"
        logger.error(says, message, _DEAD, **fields)
    else:
        logger.error("%s; on_error is told", message, **fields)
        _call_after_loop(parts, on_error, items, BatchQueueError(message))


def say_unfetched(parts: Parts, count: int) -> None:
    """Log that no caller waits for the leftovers: they must not be lost silently."""
    logger.error(
        "%d items of %r were left at shutdown, and nobody waits for them; the next "
        "call of shutdown returns them",
        count,
        parts.name,
        queue=parts.name,
        items=count,
    )


def _fields(parts: Parts, items: list[Any]) -> dict[str, Any]:
    return {"queue": parts.name, "items": len(items)}


def _call_after_loop(
    parts: Parts,
    on_error: Any,  # noqa: ANN401 - sync or async, which shows when it is called
    items: list[Any],
    error: BaseException,
) -> None:
    try:
        result = on_error(items, error)
    except BaseException as raised:  # noqa: BLE001 - nobody could catch it
        logger.error(
            "%s: on_error raised %r",
            parts.name,
            raised,
            exc_info=raised,
            **_fields(parts, items),
            hook="on_error",
        )
        return
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        logger.error(
            "%s: what on_error returned is not awaited: %s",
            parts.name,
            _DEAD,
            **_fields(parts, items),
            hook="on_error",
        )


def say_lost(parts: Parts, count: int) -> None:
    """Log what is lost at the program's end, where another thread runs the loop."""
    logger.error(
        "the program ends while the loop of queue %r runs: %d items are lost, "
        "and on_error is not told",
        parts.name,
        count,
        queue=parts.name,
        items=count,
    )
