"""Structured Streaming's micro-batches go through a queue, each exactly once."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import pyarrow as pa

from batchqueue_async import BatchQueueError, SyncBatchQueue
from batchqueue_async._functions import require_arguments
from batchqueue_async._log import logger
from batchqueue_async._validation import require_instance, require_timeout
from batchqueue_async._wording import shown
from batchqueue_async.sinks import Epoch, EpochSink, EpochWriter
from batchqueue_async.sinks.epochs import fields_of, require_sink
from batchqueue_async.sinks.names import matched

from ._lost_epochs import warn_of_lost
from ._way_in import way_into
from .arrow_batches import whole_frame
from .frames import arrow_schema, is_connect, require_running, with_types
from .items import to_batches, to_tuples
from .push import Deadline, ToItems, chosen, push_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


class _CannotLeave(BatchQueueError, pickle.PickleError):
    """A queue would be pickled; a class of error that Spark lets through to the caller.

    Spark turns `PicklingError`, and whatever is no `PickleError`, into an error about
    functions that says nothing of queues.
    """


class ForeachBatchSink(Generic[T]):
    """A function for `writeStream.foreachBatch`: pushes a micro-batch into a queue.

    It returns when everything in the micro-batch was handled, caches included: handlers
    that hold something back get `on_flush`. Then Spark commits it. If anything ended
    other than handled it raises, which fails the micro-batch and ends the query; a
    restart delivers it again.

    Without `sink` that is at least once: what a failed attempt wrote stays, and comes
    again. With `sink` a micro-batch is an epoch: it is begun, written through the
    queue's handler, and committed after the flush, before Spark commits it. What comes
    again although it is committed, because the driver died in between, is skipped.

    The queue's handler must write into the same sink. An `EpochWriter` is both::

        writer = EpochWriter(SqliteEpochSink("rows.db", "rows", ("id", "name")))
        queue = loop_thread.open("rows", BatchQueueConfig(consumer=writer))
        stream.writeStream.foreachBatch(ForeachBatchSink(queue, sink=writer))

    After a failure, what is still waiting or cached from it is flushed before the next
    attempt, so that it cannot mix with that one; as long as this fails, no micro-batch
    is accepted. A handler that keeps what it could not write keeps it until then.

    Where rows go right into the sink, since the queue's consumer, or its handler of
    tuples, is its `EpochWriter`, the frame's columns are matched with the sink's by
    name, and a frame that has others is refused. A handler of yours gets them in the
    frame's order.

    A micro-batch has one frame for each sink: a second one, such as another part of its
    rows, would be skipped as a repetition, so it raises instead. Union them.

    Calls that push into one queue wait for each other, through whatever
    `ForeachBatchSink`: a stopped query's last call may still be running when the next
    run begins. Give each of several queries a queue, a writer and a `ForeachBatchSink`
    of its own. It works in the driver's process only, so with Spark Connect it raises:
    there the server runs `foreachBatch` elsewhere.

    Args:
        sync_queue: The queue, as other threads see it.
        to_items: Makes items of a record batch, as for `push`.
        sink: Where the handler writes; None for at least once.
        timeout: Seconds for a micro-batch's way through the queue; None for no limit.
        fetch: How its rows come to the driver. `whole_frame` is one Spark job and needs
            memory for all of it; `arrow_batches` takes several jobs, and memory for two
            of their results, of a partition or 64 MiB each.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind; the timeout is
            negative.
    """

    def __init__(
        self,
        sync_queue: SyncBatchQueue[T],
        to_items: ToItems[T] | None = None,
        sink: EpochSink[Any] | None = None,
        *,
        timeout: float | None = None,
        fetch: Callable[[DataFrame], Iterator[pa.RecordBatch]] = whole_frame,
    ) -> None:
        require_instance("sync_queue", sync_queue, SyncBatchQueue, "a SyncBatchQueue")
        if sink is not None:
            require_sink(sink)
        require_arguments("fetch", fetch, 1, "one argument, a frame")
        require_timeout("timeout", timeout)
        self._sync_queue = sync_queue
        self._to_items = chosen(to_items)
        self._sink = sink
        self._timeout = timeout
        self._fetch = fetch
        self._way_in = way_into(sync_queue.queue)
        # The last call's epoch, and its query's run.
        self._called: tuple[Epoch, str | None] | None = None
        # The last epoch that this object has committed, its query's run, and its frame.
        self._committed: tuple[Epoch, str | None, DataFrame] | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Take a micro-batch; called by Spark, on a thread of its own.

        Raises:
            DeliveryError: Items ended other than handled.
            TimeoutError: It took longer than `timeout`.
            BatchQueueError: The queue is closed, its loop is dead, an earlier failure
                is not over, another frame of this micro-batch was committed, or this is
                Spark Connect.
        """
        query = _query_id(df)
        epoch = Epoch(query, batch_id, checkpoint=query)
        with self._way_in.lock:
            called, self._called = self._called, (epoch, _run_id(df))
            self._way_in.settle(self._sync_queue, epoch, self._timeout)
            if self._sink is None:
                self._attempt(df)
            elif self._sync_queue.call(self._sink.is_committed, epoch):
                self._refuse_second_frame(df, epoch)
                is_later = _is_later(self._called, called)
                _tell_skipped(epoch, self._is_odd(epoch, self._sink, is_later=is_later))
            else:
                before = self._committed_before(epoch)
                is_there = self._sink.is_committed
                self._sync_queue.call(warn_of_lost, epoch, is_there, before)
                self._attempt_epoch(df, epoch, self._sink)

    def __reduce__(self) -> NoReturn:
        msg = (
            "a ForeachBatchSink cannot leave its process, where its queue runs. Under"
            " Spark Connect foreachBatch runs in the server's: use write_partitions, or"
            ' writeStream.format("batchqueue")'
        )
        raise _CannotLeave(msg)

    def _attempt_epoch(self, df: DataFrame, epoch: Epoch, sink: EpochSink[Any]) -> None:
        try:
            self._sync_queue.call(sink.begin, epoch)
            items = self._attempt(df)
            _warn_if_unwritten(epoch, sink, items)
            self._sync_queue.call(sink.commit, epoch)
        except BaseException:
            self._give_up(epoch, sink)
            raise
        self._committed = epoch, _run_id(df), df

    def _committed_before(self, epoch: Epoch) -> Epoch | None:
        if self._committed is None:
            return None
        last = self._committed[0]
        return last if last.query == epoch.query and last < epoch else None

    def _is_odd(self, epoch: Epoch, sink: EpochSink[Any], *, is_later: bool) -> str:
        """Return what is odd about an epoch that is committed already, or "".

        Spark delivers the last micro-batch of the run before again, and no other.
        """
        if is_later:
            return "it is not the first of this run"
        after = Epoch(epoch.query, epoch.batch + 1)
        is_last = not self._sync_queue.call(sink.is_committed, after)
        return "" if is_last else "it was not the last of the run before"

    def _refuse_second_frame(self, df: DataFrame, epoch: Epoch) -> None:
        """Raise if this run has committed other rows as this epoch.

        Within a run Spark delivers an epoch once. The same frame may come again from a
        caller who tries again.
        """
        if self._committed is None or self._committed[:2] != (epoch, _run_id(df)):
            return
        if not df.sameSemantics(self._committed[2]):
            msg = (
                f"{epoch} was committed with another frame: a micro-batch has one frame"
                " for each sink, such as the union of both"
            )
            raise BatchQueueError(msg)

    def _attempt(self, df: DataFrame) -> int:
        deadline = Deadline(self._timeout)
        batches = self._in_order(df)
        self._way_in.is_settled = False
        items = push_batches(batches, self._sync_queue, self._to_items, deadline)
        self._way_in.is_settled = True
        return items

    def _in_order(self, df: DataFrame) -> Iterator[pa.RecordBatch]:
        """Fetch the rows; with columns in a sink's order, if they go right into it."""
        schema = arrow_schema(df.schema)
        batches = with_types(self._fetch(df), schema)
        columns: tuple[str, ...] | None = getattr(self._sink, "columns", None)
        if self._handler() is not self._sink:
            return batches
        if self._to_items is to_batches:
            first = next(batches, pa.RecordBatch.from_pylist([], schema))
            return chain([first], batches)
        if columns is None or self._to_items is not to_tuples:
            return batches
        names = df.columns
        exact = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        order = matched(columns, names, "the frame's columns", exact=exact)
        if len(names) > len(columns):
            msg = (
                f"a frame must have the sink's columns {shown(columns)}, got"
                f" {shown(tuple(names))}: select them"
            )
            raise ValueError(msg)
        return (batch.select(order) for batch in batches)

    def _handler(self) -> object:
        """Return the handler that gets the rows, as tuples or as record batches."""
        queue = self._sync_queue.queue
        if queue.config.consumer is not None:
            return _behind(queue.config.consumer)
        kind = pa.RecordBatch if self._to_items is to_batches else tuple
        found = queue._parts.handlers.nearest(kind)  # noqa: SLF001 - no public way
        return None if found is None else _behind(found.handler)

    def _give_up(self, epoch: Epoch, sink: EpochSink[Any]) -> None:
        try:
            self._sync_queue.call(sink.abort, epoch)
        except Exception:  # noqa: BLE001 - whatever a sink raises
            # What made it fail is raised; the next `begin` discards what is staged.
            says = "what was staged for %s cannot be discarded"
            logger.exception(says, epoch, **fields_of(epoch))
        with contextlib.suppress(Exception):
            self._way_in.settle(self._sync_queue, epoch, self._timeout)


# Bounded, since an object that has every attribute would wrap others without end.
_MOST_WRAPPERS = 16


def _behind(handler: object) -> object:
    """Return what stands behind a handler's own method, or a wrapper such as a span's.

    A wrapper is known by its `__wrapped__`: it passes on what it gets.
    """
    for _ in range(_MOST_WRAPPERS):
        handler = getattr(handler, "__wrapped__", handler)
    if getattr(handler, "__name__", "") == "consume":
        handler = getattr(handler, "__self__", handler)
    return handler


def _is_later(
    now: tuple[Epoch, str | None], before: tuple[Epoch, str | None] | None
) -> bool:
    """Whether a call is for another micro-batch of the same run as the one before."""
    return before is not None and now[1] == before[1] and now[0] != before[0]


def _tell_skipped(epoch: Epoch, why: str) -> None:
    """Log it, as a warning where no restart of the query explains it."""
    if not why:
        says = "%s is committed already: skipped"
        logger.info(says, epoch, **fields_of(epoch))
        return
    logger.warning(
        "%s is committed already: skipped, though %s. Rows that it has now, and had not"
        " then, are lost: the checkpoint was restored from an older state, another"
        " query goes on with a copy of it, or another sink writes into the same table",
        epoch,
        why,
        **fields_of(epoch),
    )


def _warn_if_unwritten(epoch: Epoch, sink: EpochSink[Any], items: int) -> None:
    if items and isinstance(sink, EpochWriter) and not sink.written:
        logger.warning(
            "%s: %d items were handled, but none was written into the epoch; the"
            " queue's handler must write through the same EpochWriter",
            epoch,
            items,
            items=items,
            **fields_of(epoch),
        )


def _run_id(df: DataFrame) -> str | None:
    """Return what tells a query's run from the one after its restart."""
    return df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")


def _query_id(df: DataFrame) -> str:
    """Return the id of the query whose micro-batch this is.

    It comes from the checkpoint: the same after a restart, in whatever process and with
    whatever parallelism.
    """
    if is_connect(df):
        msg = (
            "ForeachBatchSink must be called in the driver's process, got a frame of"
            " Spark Connect; use write_partitions, or"
            ' writeStream.format("batchqueue")'
        )
        raise BatchQueueError(msg)
    require_running(df.sparkSession)
    found = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        msg = (
            "df must be a micro-batch of foreachBatch, got a frame without a query. In"
            " threads that the function starts, wrap what they call in PySpark's"
            " inheritable_thread_target; a frame of another kind is written with"
            ' write.format("batchqueue"), or push'
        )
        raise BatchQueueError(msg)
    return found
