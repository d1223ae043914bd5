"""The driver pushes a frame into a queue, and gets a receipt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from batchqueue_async import BatchQueueError, SyncBatchQueue
from batchqueue_async._functions import (
    require_arguments,
    require_sync_function,
)
from batchqueue_async._validation import (
    require_instance,
    require_timeout,
)

from .arrow_batches import arrow_batches
from .frames import require_batch_frame
from .items import to_tuples

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

T = TypeVar("T")

ToItems: TypeAlias = "Callable[[pa.RecordBatch], Iterable[T]]"
"""What makes a queue's items of a record batch."""


@dataclass(frozen=True, slots=True)
class PushProgress:
    """How far a push is.

    Attributes:
        rows: How many rows Spark has delivered.
        items: How many items of them the queue has accepted.
        seconds: Since the push began.
    """

    rows: int
    items: int
    seconds: float


def push(  # noqa: PLR0913  # by name
    df: DataFrame,
    sync_queue: SyncBatchQueue[T],
    *,
    to_items: ToItems[T] | None = None,
    timeout: float | None = None,
    on_progress: Callable[[PushProgress], object] | None = None,
    fetch: Callable[[DataFrame], Iterator[pa.RecordBatch]] = arrow_batches,
) -> int:
    """Put a frame's rows into a queue and wait until they are handled.

    Rows come in their order, as `arrow_batches` delivers them. While the queue is full
    this thread waits, and so does Spark, which computes one job ahead. A job takes one
    partition at first, then up to 64 that are small: memory is bound by two jobs, of
    one partition or 64 MiB each, and the queue's own buffer. Ctrl-C, and whatever
    `to_items` or `on_progress` raises, end it; what was accepted until then is handled.

    It is at least once for the frame as a whole: a call after a failure pushes the same
    rows again. For exactly once see `ForeachBatchSink`.

    Args:
        df: A batch frame, of a classic session or of Spark Connect.
        sync_queue: The queue, as other threads see it.
        to_items: Makes items of a record batch: `to_tuples` (None means this one),
            `to_dicts`, `to_batches`, `to_objects(Type)`, or a function of yours.
        timeout: Seconds for all of it; None for no limit. What Spark takes counts, but
            is not interrupted.
        on_progress: Called on this thread after each record batch.
        fetch: How the rows come to the driver. `whole_frame` is one Spark job, and
            needs memory for all of them; it is a little quicker.

    Returns:
        How many items were handled.

    Raises:
        DeliveryError: Items ended other than handled; it says which, and why.
        TimeoutError: It took longer than `timeout`.
        BatchQueueError: The queue closed, or its loop is dead.
        PySparkException: Spark cannot compute the rows.
        TypeError: If an argument is of the wrong kind.
        ValueError: It is a streaming frame, or `timeout` is negative.
    """
    require_instance("sync_queue", sync_queue, SyncBatchQueue, "a SyncBatchQueue")
    make = chosen(to_items)
    if on_progress is not None:
        told = "one argument, a PushProgress"
        require_sync_function("on_progress", on_progress, 1, told)
    require_arguments("fetch", fetch, 1, "one argument, a frame")
    deadline = Deadline(timeout)
    require_batch_frame(df, "ForeachBatchSink")
    return push_batches(fetch(df), sync_queue, make, deadline, on_progress)


def push_batches(
    batches: Iterator[pa.RecordBatch],
    sync_queue: SyncBatchQueue[T],
    to_items: ToItems[T],
    deadline: Deadline,
    on_progress: Callable[[PushProgress], object] | None = None,
) -> int:
    """Put record batches into a queue and wait until they are handled."""
    rows = items = 0
    for batch in batches:
        # A list, so that a record batch's items are counted, and accepted, all at once.
        made = list(to_items(batch))
        accepted = sync_queue.produce_many(made, deadline.left())
        rows += batch.num_rows
        items += accepted
        if accepted < len(made):
            where = f"queue {sync_queue.name!r} after {items} items"
            if deadline.left() == 0:
                msg = f"no room in {where}: the {deadline} of the call are over"
                raise TimeoutError(msg)
            msg = f"{where} accepts no more: it is closed"
            if sync_queue.is_running:
                msg = (
                    f"{where} refused an item: "
                    "with DROP_NEWEST a frame cannot arrive whole"
                )
            raise BatchQueueError(msg)
        if on_progress is not None:
            on_progress(PushProgress(rows, items, deadline.passed()))
    sync_queue.flush(deadline.left())
    return items


def chosen(to_items: ToItems[T] | None) -> ToItems[T]:
    """Return what makes items: `to_tuples` if nothing else was asked for."""
    if to_items is None:
        return cast("ToItems[T]", to_tuples)
    require_arguments("to_items", to_items, 1, "one argument, a record batch")
    return to_items


class Deadline:
    """The seconds that all steps of one call share; None for no limit."""

    def __init__(self, timeout: float | None) -> None:
        require_timeout("timeout", timeout)
        self._timeout = timeout
        self._started = time.monotonic()

    def passed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started

    def left(self) -> float | None:
        """Return the seconds that are left, at least 0."""
        return None if self._timeout is None else max(0, self._timeout - self.passed())

    def __str__(self) -> str:
        return f"{self._timeout} s"
