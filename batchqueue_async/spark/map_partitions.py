"""A frame's partitions through queues on the executors: rows in, emitted rows out."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from batchqueue_async._functions import require_sync_function

from ._calls.declared import declare
from ._emitting import OpenEmittingQueue, QueueTask
from .executor_stats import accumulator_of
from .frames import map_in_arrow, require_frame
from .push import ToItems, chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

T = TypeVar("T")


def map_partitions_with_queue(
    df: DataFrame,
    open_queue: OpenEmittingQueue[T],
    schema: StructType | str,
    *,
    to_items: ToItems[T] | None = None,
) -> DataFrame:
    """Return a frame of the rows that a queue's handlers emit for this one's rows.

    For what a pipeline of queues does, done where the data is: merge, rank, filter,
    enrich in batches, with handlers that know nothing of Spark. It is lazy, for batch
    and streaming frames, of classic sessions and of Spark Connect.

    Each task has a queue, and a loop thread, of its own. A task's rows become items of
    its queue; at their end all queues of the loop thread are flushed, the last opened
    first, and shut down, and the task ends when everything is handled and emitted. So
    what a handler holds back for its next flush, or for `on_close`, belongs to the task
    that brought it. Rows come in the order in which they were emitted.

    Handlers run at least once for each row: Spark runs a task again that failed, or was
    killed, or is slow (speculation), each time with a new queue, and all of them for
    each `count` or `show` of a frame that isn't cached. Rows that are emitted belong to
    the attempt: Spark takes those of one attempt, so each appears exactly once.

    Memory is bound by one of Spark's record batches, the queue's buffer, what handlers
    hold, and 10,000 rows that wait for Spark; while these are full, handlers that
    `await emit(row)`, or emit on a thread, wait, and Spark's input with them. Those
    that emit on the loop without `await` don't wait: then what they make of the queue's
    buffer comes on top.

    A task fails with the `DeliveryError` of its flush if items ended other than
    handled, soon after the first of them; and if a handler raises in `on_close`.

    Args:
        df: The rows.
        open_queue: Gets a `LoopThread` that runs, for this task alone, and `emit`, and
            returns the queue for the items, which it opened there; `emit(row)` is what
            handlers call, on any thread: see `Emit`. Of a chain it opens all queues,
            the last one first. It reaches executors by pickle.
        schema: The columns of emitted rows: a StructType, or DDL such as "id BIGINT". A
            naive datetime is taken as UTC, an int for a TIMESTAMP as microseconds.
        to_items: Makes items of a record batch, as for `push`.

    Raises:
        TypeError, ValueError: An argument is wrong; it says which and why, and nothing
            has run.
        PySparkException: When the frame is computed: a task failed for good, with what
            it raised in the text.
    """
    told = "two arguments, a LoopThread and emit"
    require_sync_function("open_queue", open_queue, 2, told)
    make = chosen(to_items)
    require_frame(df)
    declared = declare(schema, None, "raise", "error")
    task = QueueTask(open_queue, make, declared, accumulator_of(df))
    return map_in_arrow(df, task, declared.schema)
