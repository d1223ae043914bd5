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

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._count = 0
        self._waiting: tuple[asyncio.Future[None], ...] = ()

    def add(self) -> None:
        self._count += 1

    def remove(self) -> bool:
        """Undo one `add`; returns whether it is still on."""
        self._count -= 1
        if self._waiting and not self._count:
            waiting, self._waiting = self._waiting, ()
            for ended in waiting:
                if not ended.done():
                    ended.set_result(None)
        return self._count > 0

    def ended(self) -> asyncio.Future[None]:
        """Return a future that is done when it is off."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._count:
            self._waiting = (*self._waiting, ended)
        else:
            ended.set_result(None)
        return ended


def pause(partition: Partition[Any]) -> None:
    """Keep its items back until `resume`, called as often."""
    if partition.pausing is None:
        partition.pausing = Pause()
    partition.pausing.add()


def resume(partition: Partition[Any]) -> None:
    """Undo one `pause`."""
    if partition.pausing is not None and not partition.pausing.remove():
        partition.pausing = None
