"""Keeps a partition's waiting items back while a batch of it is not settled.

A batch that waits for its retry keeps the order of its partition in this way; one
whose handler cannot be stopped keeps the handler from being entered twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition


class Pause:
    """A partition's pause: it lasts while it has holders; without any there is none."""

    __slots__ = ("holders", "since", "waiting")

    def __init__(self) -> None:
        # What keeps it on: batches, calls, or a line with unaware producers.
        self.holders: dict[object, None] = {}
        # The futures of those that wait for its end.
        self.waiting: tuple[asyncio.Future[None], ...] = ()
        # When a batch began to keep it on, if one did.
        self.since: float | None = None

    def tell(self) -> None:
        """Wake those that wait for its end: nobody keeps it on any more."""
        waiting, self.waiting = self.waiting, ()
        for ended in waiting:
            if not ended.done():
                ended.set_result(None)

    def ended(self) -> asyncio.Future[None]:
        """Return a future that is done when it is off."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.holders:
            self.waiting = (*self.waiting, ended)
        else:
            ended.set_result(None)
        return ended


def pause(partition: Partition[Any], holder: object) -> None:
    """Keep its items back until `resume` for the same holder; again has no effect."""
    pausing = partition.pausing or Pause()
    if pausing.since is None:
        pausing.since = partition.clock()
    pausing.holders[holder] = None
    partition.pausing = pausing


def resume(partition: Partition[Any], holder: object) -> None:
    """Undo a holder's `pause`; again, or without one, it has no effect."""
    if (pausing := partition.pausing) is not None:
        pausing.holders.pop(holder, None)
        if pausing.holders:
            return
        pausing.tell()
    # Also without holders: a signal handler may have cut an earlier `resume` short.
    partition.pausing = None
