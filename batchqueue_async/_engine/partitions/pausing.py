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
    """On while anybody keeps it on; there is none where nobody does."""

    __slots__ = ("count", "waiting")

    def __init__(self) -> None:
        # How many keep it on.
        self.count = 0
        # Who waits for its end.
        self.waiting: tuple[asyncio.Future[None], ...] = ()

    def tell(self) -> None:
        """Nobody keeps it on any more: who waits for that goes on."""
        waiting, self.waiting = self.waiting, ()
        for ended in waiting:
            if not ended.done():
                ended.set_result(None)

    def ended(self) -> asyncio.Future[None]:
        """Return a future that is done when it is off."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.count:
            self.waiting = (*self.waiting, ended)
        else:
            ended.set_result(None)
        return ended


def pause(partition: Partition[Any]) -> None:
    """Keep its items back until `resume`, called as often."""
    pausing = partition.pausing or Pause()
    pausing.count += 1
    partition.pausing = pausing


def resume(partition: Partition[Any]) -> None:
    """Undo one `pause`."""
    if (pausing := partition.pausing) is None:
        return
    pausing.count -= 1
    if not pausing.count:
        partition.pausing = None
        pausing.tell()
