"""The demo's own `EpochSink`: a month's aggregates, combined with what is there.

The library's sinks add rows; here an epoch changes rows that earlier ones wrote. So its
merged windows are kept in memory, and `commit` combines them with the tables and adds
the fence, in one transaction. A process that dies before has written nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import astuple
from typing import TypeAlias

from batchqueue_async.sinks import Epoch

from .database import Connect, Database, Partials, metric_rows, top_rows
from .events import Cancellation
from .metrics import Window
from .topn import TopDelay

Result: TypeAlias = Window | TopDelay | Cancellation


class FlightEpochs:
    """Writes what the queues made of an epoch; its connection lives on their loop."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._database: Database | None = None
        self._results: dict[Epoch, list[Result]] = {}

    async def begin(self, epoch: Epoch) -> None:
        self._results[epoch] = []

    async def write(self, epoch: Epoch, items: list[Result]) -> None:
        self._results[epoch].extend(items)

    async def commit(self, epoch: Epoch) -> None:
        # On a thread: merging a month's results would block the loop for too long.
        partials = await asyncio.to_thread(_partials, self._results.pop(epoch))
        await (await self._open()).write_epoch(epoch, partials)

    async def abort(self, epoch: Epoch) -> None:
        self._results.pop(epoch, None)

    async def is_committed(self, epoch: Epoch) -> bool:
        return await (await self._open()).has_epoch(epoch)

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()

    async def _open(self) -> Database:
        if self._database is None:
            self._database = await self._connect()
        return self._database


def _partials(results: Iterable[Result]) -> Partials:
    merged, cancelled = [], []
    for result in results:
        if isinstance(result, Cancellation):
            cancelled.append(astuple(result))
        else:
            merged.append(result)
    return Partials(metric_rows(merged), top_rows(merged), cancelled)
