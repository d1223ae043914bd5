"""What `map_partitions_with_queue` does on executors: items in, emitted rows out.

`QueueTask` is the function that Spark runs. `_Exchange` puts its items into the queue
and takes the emitted rows; `_Output` holds these, and handlers add to it with `Emit`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import _get_running_loop
from collections.abc import (
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from batchqueue_async import (
    BatchQueue,
    BatchQueueError,
    LoopThread,
    SyncBatchQueue,
)
from batchqueue_async._wording import shown

from ._calls.declared import DeclaredColumns
from ._calls.results import RowColumns
from .executor_stats import Report, together
from .worker_output import worker_flush

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

T = TypeVar("T")

# Rows of a record batch at most, as by Spark's default; the output is full when as many
# rows wait for Spark.
_MOST_ROWS = 10_000
# Seconds that the loop may be blocked: that delays nobody but its own task.
_PATIENCE = 600.0
# Seconds to end the queues when nobody wants the rest of a task's rows.
_GRACE = 1.0


class Emit:
    """Hands rows to the task of Spark's that its queue belongs to; on any thread.

    `emit(row)` and `emit.many(rows)` take the rows at once. On the loop they never
    block; `await emit(row)` then waits while the output is full, and with it the
    handler, its queue and Spark's input. Without the `await` the queue gets no more
    input while the output is full, but goes on with what it holds. On a thread of a
    handler's (`in_thread`) they block while the output is full.

    A row is a dict with all columns of the schema (others are ignored), a Row or
    NamedTuple, also by name, or a tuple, by position.

    Raises:
        BatchQueueError: The task is over.
    """

    def __init__(self, output: _Output) -> None:
        self._output = output
        self._task_thread = threading.get_ident()

    # Typed `Any`: type checkers want results that are awaitable to be awaited.

    def __call__(self, row: Any) -> Any:  # noqa: ANN401
        """Emit one row; the result need not be awaited."""
        return self.many((row,))

    def many(self, rows: Iterable[Any]) -> Any:  # noqa: ANN401
        """Emit rows in their order; the result need not be awaited."""
        self._output.add(rows if isinstance(rows, tuple | list) else [*rows])
        # The task's own thread takes the rows: it must not wait for itself.
        if _get_running_loop() is None and threading.get_ident() != self._task_thread:
            self._output.wait_here()
        return self

    def __await__(self) -> Generator[Any, None, None]:
        return self._output.wait_for_room().__await__()


OpenEmittingQueue: TypeAlias = Callable[[LoopThread, Emit], SyncBatchQueue[T]]
"""Opens a queue whose handlers emit rows: `return loop_thread.open(...)`."""


@dataclass(frozen=True)
class QueueTask:
    open_queue: OpenEmittingQueue[Any]
    to_items: Callable[[pa.RecordBatch], Iterable[Any]]
    declared: DeclaredColumns
    told: Accumulator[Report] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = RowColumns(self.declared.columns)
        loop_thread = _TaskThread()
        exchange = _Exchange(loop_thread)
        flush = worker_flush()
        try:
            queue = loop_thread.opened(self.open_queue, exchange.emit)
            # Not by `map`, for which a StopIteration of `to_items` is the input's end.
            parts = (self.to_items(batch) for batch in batches)
            for rows in exchange.rows_of(queue, parts):
                for start in range(0, len(rows), _MOST_ROWS):
                    yield columns.of_rows(rows[start : start + _MOST_ROWS])
                    flush()
        except BaseException:
            exchange.end()
            raise
        if self.told is not None:
            self.told.add(loop_thread.report())


class _TaskThread(LoopThread):
    """The loop of one task; knows the queues that were opened on it."""

    def __init__(self) -> None:
        super().__init__("batchqueue-map-partitions", patience=_PATIENCE)
        self._queues: list[SyncBatchQueue[Any]] = []

    def open(self, *declared: Any, **named: Any) -> SyncBatchQueue[Any]:  # noqa: ANN401
        self._queues.append(super().open(*declared, **named))
        return self._queues[-1]

    def opened(
        self, open_queue: OpenEmittingQueue[Any], emit: Emit
    ) -> SyncBatchQueue[Any]:
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

    async def flush_here(self) -> None:
        """Do what `flush` does, on the loop.

        It needs no thread of the loop's executor, which can't be had where a worker's
        memory is used up; then that would be told in place of what has failed.
        """
        await self._running().manager.flush()

    def report(self) -> Report:
        report: Report = {}
        for queue in self._queues:
            report = together(report, {queue.name: queue.queue.stats()})
        return report

    def close(self) -> None:
        left = self.stop()
        for queue in self._queues:
            # Of a queue that is shut down they don't change. Its loop may not answer:
            # it waits for threads to end, or to start where a worker has no memory.
            if names := queue.queue.stats().not_closed:
                msg = f"queue {queue.name!r}: {', '.join(names)} could not close"
                raise BatchQueueError(msg)
        if any(left.values()):
            msg = f"items were left at the end, in {', '.join(left)}"
            raise BatchQueueError(msg)


class _Exchange:
    """One task's items in, and its rows out, until its queues are closed.

    Async work runs on the loop, in steps that the task's own thread asks for. That
    thread puts items in and takes rows out: while it waits for the queue to accept
    items it takes what is emitted, so a handler that waits for room in the output
    always gets it.
    """

    def __init__(self, loop_thread: _TaskThread) -> None:
        self._loop_thread = loop_thread.start()
        self._output = loop_thread.portal.call(_Output)
        self.emit = Emit(self._output)
        self._work: asyncio.Task[None] | None = None

    def rows_of(
        self, queue: SyncBatchQueue[Any], parts: Iterable[Iterable[Any]]
    ) -> Iterator[list[Any]]:
        """Put items into the queue; return what is emitted, a part at a time."""
        for items in parts:
            put = partial(self._put, queue.queue, list(items))
            yield from self._rows_during(queue, put)
        yield from self._rows_during(queue, self._loop_thread.flush_here)
        # Nobody takes rows while the queues close, so handlers must not wait for room.
        self._loop_thread.portal.call(self._output.unbind)
        self._loop_thread.close()
        yield self._output.close()

    def end(self) -> None:
        """Give up what is not done: Spark has failed, or wants no more rows."""
        # The loop may have ended by itself; then the task's error says so.
        with contextlib.suppress(BatchQueueError, RuntimeError):
            self._loop_thread.portal.call(self._give_up)
        with contextlib.suppress(BatchQueueError):
            self._loop_thread.stop(_GRACE)
        self._output.close()

    def _rows_during(
        self, queue: SyncBatchQueue[Any], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> Iterator[list[Any]]:
        rows, is_done = queue.call(self._advance, work)
        while True:
            if rows:
                yield rows
            if is_done:
                return
            rows, is_done = queue.call(self._advance)

    async def _advance(
        self, begin: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> tuple[list[Any], bool]:
        """Go on until the work is done, or there are enough rows to be passed on."""
        output = self._output
        if begin is not None:
            self._work = asyncio.create_task(begin(), name="map_partitions_with_queue")
            self._work.add_done_callback(lambda _: output.news.set())
        work = self._work
        assert work is not None
        while not (work.done() or output.is_full):
            output.news.clear()
            await output.news.wait()
        if work.cancelled():
            # A CancelledError raised here would cancel whoever asks for the step.
            msg = "the queue's work for a task of Spark's was cancelled"
            raise BatchQueueError(msg)
        if work.done():
            work.result()
        return output.take() if output.is_full else [], work.done()

    async def _put(self, queue: BatchQueue[Any], items: list[Any]) -> None:
        accepted = await queue.produce_many(items)
        if accepted < len(items):
            msg = (
                f"queue {queue.name!r} accepted {accepted} of {len(items)} items:"
                " it is closed, or drops new items"
            )
            raise BatchQueueError(msg)
        if queue.stats().failed:
            # The flush raises what failed; for a failed task more rows are in vain.
            await self._loop_thread.flush_here()

    def _give_up(self) -> None:
        """Cancel the work, and drop its rows, so that nobody waits for them."""
        if self._work is not None:
            self._work.cancel()
        self._output.give_up()


class _Output:
    """Emitted rows: any thread adds them; the loop takes them, and waits for room."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._rows: list[Any] = []
        self._is_open = True
        self._is_wanted = True
        self._is_bound = True
        self._is_told = False
        self._room = asyncio.Event()
        # Set when the output becomes full; `_Exchange` also sets it at its work's end.
        self.news: asyncio.Event = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= _MOST_ROWS

    def add(self, rows: Sequence[Any]) -> None:
        """Add rows, even if the output is full already."""
        with self._lock:
            if not self._is_open:
                msg = "a row was emitted for a task of Spark's that is over"
                raise BatchQueueError(msg)
            if not self._is_wanted:
                return
            self._rows += rows
            tells = self.is_full and not self._is_told
            self._is_told = self._is_told or tells
        if tells:
            if _get_running_loop() is self._loop:
                self.news.set()
            else:
                self._loop.call_soon_threadsafe(self.news.set)

    async def wait_for_room(self) -> None:
        while self._must_wait:
            self._room.clear()
            await self._room.wait()

    def wait_here(self) -> None:
        """Wait while the output is full, on a thread that isn't the loop's."""
        if self._must_wait:
            waiting = self.wait_for_room()
            asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    def take(self) -> list[Any]:
        with self._lock:
            rows, self._rows = self._rows, []
            self._is_told = False
        self._room.set()
        return rows

    def unbind(self) -> None:
        """Let nobody wait for room any more: no rows are taken before handlers end."""
        self._is_bound = False
        self._room.set()

    def give_up(self) -> None:
        """Drop all rows from now on, without an error: no handler is to blame."""
        with self._lock:
            self._is_wanted = False
            self._rows = []
        self.unbind()

    def close(self) -> list[Any]:
        """Refuse rows from now on; returns those that are left. On any thread."""
        with self._lock:
            self._is_open = False
            rows, self._rows = self._rows, []
        return rows

    @property
    def _must_wait(self) -> bool:
        return self._is_bound and self.is_full
