"""What one writes by hand on executors: a loop thread, a queue, a barrier."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pyarrow as pa

RESULT = "rows BIGINT"


class BareQueue:
    """A loop on a thread with one bounded queue; `take` gets each item."""

    def __init__(self, take: Callable[[Any], Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue(8)
        self._take = take
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, item: object) -> None:
        """Wait for room."""
        put = self._queue.put(item)
        asyncio.run_coroutine_threadsafe(put, self._loop).result()

    def join(self) -> None:
        """Wait until everything is taken."""
        asyncio.run_coroutine_threadsafe(self._queue.join(), self._loop).result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._drain())

    async def _drain(self) -> None:
        while True:
            self._take(await self._queue.get())
            self._queue.task_done()


@cache
def bare_queue() -> BareQueue:
    """The one of this process; its consumer only looks at the size."""
    return BareQueue(lambda batch: batch.num_rows)


def into_bare_queue(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the least that a queue on an executor can cost."""
    queue = bare_queue()
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        queue.put(batch)
    queue.join()
    yield pa.record_batch({"rows": [rows]})
