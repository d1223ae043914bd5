"""A queue's way in for micro-batches: one at a time, and none beside another's rest."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from batchqueue_async import BatchQueueError, DeliveryError

if TYPE_CHECKING:
    from batchqueue_async import BatchQueue, SyncBatchQueue
    from batchqueue_async.sinks import Epoch


class WayIn:
    """What all who push micro-batches into one queue share.

    It is the queue's, not a `ForeachBatchSink`'s: a program that makes a new one for
    each start of its query would write what the last one left into its own epoch.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_settled = True

    def settle(
        self, sync_queue: SyncBatchQueue[Any], epoch: Epoch, timeout: float | None
    ) -> None:
        """Flush what a failed attempt left in the queue and in caches.

        Raises:
            BatchQueueError: A handler still holds some of it; the epoch has to wait.
            TimeoutError: It took longer than `timeout`.
        """
        if self.is_settled:
            return
        try:
            sync_queue.flush(timeout)
        except DeliveryError as error:
            # Items that failed are gone; a cache that failed still has what it held.
            outcomes = {failure.outcome for failure in error.failures}
            if "on_flush" in outcomes or error.count > len(error.failures):
                msg = f"{epoch} has to wait: a handler still holds what failed before"
                raise BatchQueueError(msg) from error
        self.is_settled = True


_ways: WeakKeyDictionary[BatchQueue[Any], WayIn] = WeakKeyDictionary()


def way_into(queue: BatchQueue[Any]) -> WayIn:
    """Return the queue's."""
    # Atomic: two threads that ask for the first time get the same one.
    return _ways.setdefault(queue, WayIn())
