"""A call that cannot be stopped keeps its handler and partitions until it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from batchqueue_async._log import logger

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
    from batchqueue_async._engine.queue_parts import Parts


class Stuck(NamedTuple):
    """A call that is inside and cannot be stopped."""

    call: HandlerCall
    batch: Batch[Any] | None
    """The batch that it was given; None if it is a hook."""


def outlive(
    parts: Parts,
    rest: asyncio.Future[Any],
    call: HandlerCall,
    batch: Batch[Any] | None = None,
) -> None:
    """Give a call up, and keep all others out of its handler until its rest ends.

    The partitions of its batch stay paused until then. Who waits for these waits for
    it, so to the wait-for graph it is not over.
    """
    calls, lock, registration = parts.running_calls, call.lock, call.registration
    assert lock is not None
    assert registration is not None
    stuck = Stuck(call, batch)
    if batch is not None:
        batch.pause_partitions(call)
    calls.inside[call] = False
    calls.left_behind = (*calls.left_behind, call)
    lock.stuck = (*lock.stuck, stuck)
    call.is_over = False

    def ended(_: asyncio.Future[Any]) -> None:
        call.is_over = True
        calls.inside.pop(call, None)
        calls.left_behind = tuple(it for it in calls.left_behind if it is not call)
        lock.stuck = tuple(each for each in lock.stuck if each is not stuck)
        lock.release(call.mode)
        if batch is not None:
            batch.resume_partitions(call)
        parts.tasks.wake()

    rest.add_done_callback(ended)
    more = {"hook": call.hook} if batch is None else {"items": len(batch)}
    logger.error(
        "%s: %s cannot be stopped; its handler is blocked until it ends",
        parts.name,
        call.label,
        queue=parts.name,
        handler=registration.label,
        **more,
    )
