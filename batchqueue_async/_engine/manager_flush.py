"""A flush of all queues of a manager, one after the other, within one time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchqueue_async._engine.lifecycle.flush import Flush
from batchqueue_async._engine.queue import parts_of
from batchqueue_async._policies.errors import DeliveryError, delivery_error_of

if TYPE_CHECKING:
    from batchqueue_async._engine.manager import BatchQueueManager


async def settle_all(
    manager: BatchQueueManager, timeout: float | None, flushed: list[Flush]
) -> None:
    """Flush all queues, the last created first, into `flushed`; not for users."""
    limit, flush = asyncio.timeout(timeout), None
    try:
        async with limit:
            # Those that end are first: a shutdown takes them from the end of `_queues`.
            ending = manager._ending.values()  # noqa: SLF001
            for queue in (*ending, *reversed(manager._queues.values())):  # noqa: SLF001
                flush = Flush(parts_of(queue), queue._log)  # noqa: SLF001
                await flush.settle(None)
                flushed.append(flush)
    except TimeoutError as error:
        if flush is not None and limit.expired():
            flush.tell_late(error, timeout)
        raise


@contextmanager
def reporting() -> Iterator[list[Flush]]:
    """Raise the failures of the flushes that are added to the list, at the block's end.

    Not earlier: if the caller is cancelled meanwhile, the next flush reports them.
    """
    flushed: list[Flush] = []
    try:
        yield flushed
    except TimeoutError as late:
        raise late from _reported(flushed)
    if (failed := _reported(flushed)) is not None:
        raise failed


def _reported(flushed: Iterable[Flush]) -> DeliveryError | None:
    reports = [each.report() for each in flushed]
    return delivery_error_of([each for each in reports if each is not None])
