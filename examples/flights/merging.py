"""L1 and L2: merge the windows of a metric, and pass them on from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from batchqueue_async import BatchQueue, BatchQueueError

from .metrics import Window

Windows = dict[tuple[str, int], Window]


def merge_into(windows: Windows, batch: Iterable[Window]) -> None:
    """Combine windows of one metric that have the same key and hour."""
    for window in batch:
        known = windows.setdefault((window.key, window.hour), window)
        if known is not window:
            known.combine(window)


class WindowMerger:
    """The handler of one metric type.

    It needs no lock: a type stays in one partition, so its handler is never entered
    twice at once.

    Args:
        downstream: The queue of the next stage.
        every: Seconds after which windows are passed on.
        at_most: How many windows are held back at most; more are passed on at once.
    """

    def __init__(
        self, downstream: BatchQueue[Window], *, every: float, at_most: int
    ) -> None:
        self._downstream = downstream
        self._every = every
        self._at_most = at_most
        self._windows: Windows = {}
        self._loop = asyncio.get_running_loop()
        self._passed_on = self._loop.time()

    async def consume(self, batch: list[Window]) -> None:
        merge_into(self._windows, batch)
        if self._is_due() or len(self._windows) >= self._at_most:
            await self._pass_on()

    async def on_idle(self) -> None:
        if self._is_due():
            await self._pass_on()

    async def on_flush(self) -> None:
        await self._pass_on()

    async def on_close(self) -> None:
        await self._pass_on()

    def _is_due(self) -> bool:
        return self._loop.time() - self._passed_on >= self._every

    async def _pass_on(self) -> None:
        windows, self._windows = self._windows, {}
        self._passed_on = self._loop.time()
        accepted = await self._downstream.produce_many(windows.values())
        if accepted < len(windows):
            msg = f"{self._downstream.name} closed before the stage that feeds it"
            raise BatchQueueError(msg)
