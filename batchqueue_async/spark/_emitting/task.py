"""The function that Spark runs for each partition."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    HandlerLike,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async._wording import shown

from .._calls.declared import Declared
from .._calls.row_columns import RowColumns
from ..executor_stats import Report, since, together
from .emit import Emit
from .exchange import Exchange, Step
from .output import Output

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

T = TypeVar("T")

OpenEmittingQueue: TypeAlias = Callable[[LoopThread, Emit], SyncBatchQueue[T]]
"""Opens a queue whose handlers emit rows: `return loop_thread.open(...)`."""

# Of a record batch: as many as Spark puts into one unless it is told otherwise.
_MOST_ROWS = 10_000
# Seconds. A handler that blocks the loop holds up nobody but its own task.
_PATIENCE = 600.0
# Seconds for what the queues hold when nobody wants the rest of a task's rows.
_GRACE = 1.0


@dataclass(frozen=True)
class QueueTask:
    """The function for `mapInArrow`."""

    open_queue: OpenEmittingQueue[Any]
    to_items: Callable[[pa.RecordBatch], Iterable[Any]]
    declared: Declared
    told: Accumulator[Report] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = RowColumns(self.declared.columns)
        loop_thread = _TaskThread("batchqueue-map-partitions")
        emitting = _Emitting(loop_thread)
        try:
            queue = loop_thread.opened(self.open_queue, emitting.emit)
            for rows in emitting.rows_of(queue, map(self.to_items, batches)):
                for start in range(0, len(rows), _MOST_ROWS):
                    yield columns.of_rows(rows[start : start + _MOST_ROWS])
        finally:
            emitting.end()
        if self.told is not None:
            self.told.add(loop_thread.report())


class _TaskThread(LoopThread):
    """The loop of one task; knows the queues that were opened on it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, patience=_PATIENCE)
        self._queues: list[SyncBatchQueue[Any]] = []

    def open(
        self,
        name: str,
        config: BatchQueueConfig[T] | None = None,
        handlers: Mapping[type[Any], HandlerLike[Any]] | None = None,
    ) -> SyncBatchQueue[T]:
        queue = super().open(name, config, handlers)
        self._queues.append(queue)
        return queue

    def opened(
        self, open_queue: OpenEmittingQueue[Any], emit: Emit
    ) -> SyncBatchQueue[Any]:
        """Return the queue that `open_queue` opens."""
        queue: object = open_queue(self, emit)
        if not isinstance(queue, SyncBatchQueue):
            msg = f"open_queue must return a SyncBatchQueue, got {shown(queue)}"
            raise TypeError(msg)
        if queue not in self._queues:
            msg = (
                "open_queue must open its queue with the LoopThread that it gets, got"
                f" {queue.name!r} from elsewhere"
            )
            raise ValueError(msg)
        return queue

    def report(self) -> Report:
        report: Report = {}
        for queue in self._queues:
            report = together(report, {queue.name: since(None, queue.stats())})
        return report

    def close(self) -> None:
        """End all queues in good order."""
        left = self.stop()
        for queue in self._queues:
            if names := queue.stats().not_closed:
                msg = f"queue {queue.name!r}: {', '.join(names)} could not close"
                raise BatchQueueError(msg)
        if any(left.values()):
            msg = f"items were left at the end, in {', '.join(left)}"
            raise BatchQueueError(msg)


class _Emitting:
    """One task's rows out, from the first to what is emitted when its queues close."""

    def __init__(self, loop_thread: _TaskThread) -> None:
        self._loop_thread = loop_thread.start()
        self._output = loop_thread.portal.call(Output, _MOST_ROWS)
        self.emit = Emit(self._output)
        self._exchange: Exchange | None = None
        self._is_done = False

    def rows_of(
        self, queue: SyncBatchQueue[Any], parts: Iterable[Iterable[Any]]
    ) -> Iterator[list[Any]]:
        """Put items into the queue; return what is emitted, a part at a time."""
        exchange = Exchange(queue.queue, self._loop_thread.flush, self._output)
        self._exchange = exchange

        def rest(step: Step) -> Iterator[list[Any]]:
            while True:
                if step.rows:
                    yield step.rows
                if step.is_done:
                    return
                step = queue.call(exchange.advance)

        for items in parts:
            yield from rest(queue.call(exchange.put, list(items)))
        yield from rest(queue.call(exchange.flush))
        # Nobody takes rows while the queues close, so nobody may wait for that.
        self._loop_thread.portal.call(self._output.unbind)
        self._loop_thread.close()
        self._is_done = True
        yield self._output.close()

    def end(self) -> None:
        """Give up what is not done: Spark has failed, or wants no more rows."""
        if self._is_done:
            return
        if self._exchange is not None:
            # The loop may have ended by itself: of that the task's error tells.
            with contextlib.suppress(BatchQueueError, RuntimeError):
                self._loop_thread.portal.call(self._exchange.abandon)
        with contextlib.suppress(BatchQueueError):
            self._loop_thread.stop(_GRACE)
        self._output.close()
