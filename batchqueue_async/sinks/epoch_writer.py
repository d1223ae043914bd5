"""Between a queue's handlers and a sink: it knows which epoch is open."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

from batchqueue_async import BatchQueueError

from .epochs import Epoch, EpochSink, require_sink

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("batchqueue_async")


class EpochWriter(Generic[T]):
    """A handler that writes every batch into the epoch that is open, and its sink.

    It is both ends of the way through a queue: the queue's handler, or what a handler
    of yours writes with; and the `EpochSink` that begins and commits. So it is given to
    both, and the handler needs no idea of epochs.

    After an `abort` it takes what still comes, from caches for instance, and drops it:
    it belongs to the epoch that was given up, and will come again. At any other time
    `consume` without an open epoch raises, so that nothing gets past a fence.

    Args:
        sink: Where the epochs go. Closed with the queue, if it has a `close`.
    """

    def __init__(self, sink: EpochSink[T]) -> None:
        require_sink("sink", sink)
        self._sink = sink
        self._epoch: Epoch | None = None
        self._drops = False
        self._written = 0

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that is open."""
        return self._epoch

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of a row's values, if the sink tells them in its `columns`."""
        return getattr(self._sink, "columns", None)

    @property
    def written(self) -> int:
        """How many items went into the epoch that is open, or was the last."""
        return self._written

    async def consume(self, batch: list[T]) -> None:
        """Write a batch, or anything else, into the open epoch.

        Raises:
            BatchQueueError: No epoch is open.
        """
        if self._epoch is not None:
            await self._sink.write(self._epoch, batch)
            self._written += len(batch)
        elif self._drops:
            logger.debug(
                "%d items of an epoch that was given up",
                len(batch),
                extra={"items": len(batch)},
            )
        else:
            msg = f"no epoch is open: {len(batch)} items would get past the fence"
            raise BatchQueueError(msg)

    async def on_close(self) -> None:
        """Close the sink."""
        close = getattr(self._sink, "close", None)
        if close is not None:
            await close()

    async def begin(self, epoch: Epoch) -> None:
        """Start an attempt: from now on `consume` writes into this epoch.

        Raises:
            BatchQueueError: Another epoch is open.
        """
        if self._epoch not in {None, epoch}:
            msg = f"{self._epoch} is open: {epoch} has to wait for its end"
            raise BatchQueueError(msg)
        self._epoch = None
        await self._sink.begin(epoch)
        self._epoch, self._drops, self._written = epoch, False, 0

    async def write(self, epoch: Epoch, items: list[T]) -> None:
        """Write into an epoch that is named, as the sink does."""
        await self._sink.write(epoch, items)

    async def commit(self, epoch: Epoch) -> None:
        """End the attempt: from now on `consume` raises."""
        self._close_for_writing(epoch)
        await self._sink.commit(epoch)

    async def abort(self, epoch: Epoch) -> None:
        """Give the attempt up: from now on `consume` drops, until the next `begin`."""
        self._close_for_writing(epoch)
        self._drops = True
        await self._sink.abort(epoch)

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return what the sink says."""
        return await self._sink.is_committed(epoch)

    def _close_for_writing(self, epoch: Epoch) -> None:
        if self._epoch == epoch:
            self._epoch = None
