"""A handler that cannot be stopped keeps its partitions blocked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from batchqueue_async._engine.draining.stages import UNDECIDED
from batchqueue_async._engine.runtime.log import logger

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
    from batchqueue_async._engine.queue_parts import Parts


def outlive(
    parts: Parts, left: asyncio.Future[Any], batch: Batch[Any], call: HandlerCall
) -> None:
    """Block the partitions of a handler that cannot be stopped, until it ends."""
    batch.pause_partitions(call)

    def ended() -> None:
        batch.resume_partitions(call)
        parts.tasks.wake()

    parts.detector.calls.outlives(call, left, batch, ended)
    # It is inside, and its drain task is not.
    batch.stage = UNDECIDED
    assert batch.registration is not None
    label = batch.registration.label
    logger.error(
        "%s: %s cannot be stopped; its partitions are blocked until it ends",
        parts.name,
        label,
        queue=parts.name,
        handler=label,
        items=len(batch),
    )
