"""Says of each retry that it will be: in the counts, in the log and to `on_retry`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from batchqueue_async._engine.draining.batch import Batch
from batchqueue_async._engine.handlers.handler_lock import EXCLUSIVE
from batchqueue_async._engine.handlers.user_call import attempt
from batchqueue_async._engine.runtime.call_context import HandlerCall
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._wording import reason

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")


async def report_retry(
    parts: Parts[T],
    batch: Batch[T],
    error: BaseException,
    drain_task: int,
) -> None:
    """Tell everybody who wants to know that the batch waits for its next attempt.

    The batch is safe meanwhile: in the retry queue, whatever cuts this short.
    """
    registration = batch.registration
    assert registration is not None
    count, retry = len(batch), registration.retry
    wait = max(0.0, batch.due - asyncio.get_running_loop().time())
    registration.retried += count
    parts.delivery.retried += count
    parts.repeated_failures.warning(
        "%s: %d items failed in %s with %s; attempt %d of %d in %.3g s",
        parts.name,
        count,
        registration.label,
        reason(error),
        batch.attempts + 1,
        retry.attempts,
        wait,
        title=f"{parts.name}: items are tried again in {registration.label}",
        error=error,
        items=count,
    )
    if parts.config.on_retry is None:
        return
    try:
        await _tell(parts, batch, error, wait, drain_task)
    except Exception:  # noqa: BLE001 - no memory for the list
        logger.exception("%s: on_retry could not be told", parts.name)


async def _tell(
    parts: Parts[T],
    batch: Batch[T],
    error: BaseException,
    wait: float,
    drain_task: int,
) -> None:
    on_retry, registration = parts.config.on_retry, batch.registration
    timeout = None if registration is None else registration.timeout
    assert on_retry is not None
    items, tried = batch.items.copy(), batch.attempts
    if (permit := parts.detector.permit) is not None:
        await permit.regain()
    detector = parts.detector
    with HandlerCall(detector, drain_task, None, EXCLUSIVE, registration, "on_retry"):
        raised = await attempt(on_retry, items, error, tried, wait, timeout=timeout)
    if raised is not None:
        parts.repeated_failures.error(
            "%s: on_retry raised %s for %d items that had failed with %s",
            parts.name,
            reason(raised),
            len(batch),
            reason(error),
            title=f"{parts.name}: on_retry raised",
            error=raised,
            items=len(batch),
        )
