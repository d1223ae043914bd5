"""Tells of items that an end has left unhandled: the log, and `on_error`.

They are in the list that its functions get until they have been told of.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.draining.failed_batch import tell_on_error
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    EXCLUSIVE,
    HandlerCall,
)
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._engine.runtime.loop_end import GRACE, cancel_for_good
from batchqueue_async._functions import is_async
from batchqueue_async._policies.errors import BatchQueueError

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


# How long `on_error` may take for what an end left, beyond its deadline.
_LEFTOVER_TIME = 1.0
_DEAD = "the loop does not run any more"


async def tell_leftovers(parts: Parts, left: list[Any], message: str) -> None:
    """Log them, and give them to `on_error`, which has a second.

    If that is cancelled before `on_error` was called, they are still there.
    """
    if not left:
        return
    items, begun = left.copy(), list[None]()
    telling: asyncio.Task[None] | None = None

    async def call() -> None:
        begun.append(None)
        with HandlerCall(parts.detector, None, None, EXCLUSIVE, None, "on_error"):
            await tell_on_error(parts, items, BatchQueueError(message))

    # No call in between: they are there, or told of.
    del left[:]
    try:
        logger.error(message, **_fields(parts, items))
        if parts.config.on_error is None:
            begun.append(None)
            return
        telling = asyncio.create_task(call())
        _, late = await asyncio.wait({telling}, timeout=_LEFTOVER_TIME)
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
            # Somebody cancelled one of both tasks. Cancelled before its first step, the
            # other one never takes it.
            if telling is not None:
                telling.cancel()
            left[:0] = items


def tell_leftovers_after_loop(parts: Parts, left: list[Any], message: str) -> None:
    """Do the same where nothing can be awaited any more."""
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
    """Nobody waits for the list of what was left: it must not be silent."""
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
