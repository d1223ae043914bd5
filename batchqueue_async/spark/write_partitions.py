"""A frame's partitions into queues on the executors, with a receipt for the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType

from batchqueue_async import (
    BatchQueueError,
    DeliveryError,
    Failure,
    SyncBatchQueue,
)
from batchqueue_async._functions import require_sync_function
from batchqueue_async._validation import require_timeout
from batchqueue_async._wording import add_note, reason

from .arrow_batches import one_ahead, telling_stop
from .executor_queue import OpenQueue, executor_queue
from .executor_stats import Report, counted, since, watching
from .frames import arrow_schema, is_connect, map_in_arrow, require_batch_frame
from .push import ToItems, chosen

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame

T = TypeVar("T")

# The columns of a task's answer to the driver.
_ANSWER = (
    StructType()
    .add("partition", IntegerType())
    .add("rows", LongType())
    .add("items", LongType())
    .add("failed", LongType())
    .add("failures", ArrayType(StringType()))
    .add("queue", StringType())
)
# Per partition: the answers of thousands of them must fit into the driver.
_MOST_FAILURES = 10


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What came of one partition, told by the attempt that Spark accepted.

    Attributes:
        partition: Its number.
        rows: How many rows it had.
        items: How many items the queue accepted.
        failed: How many of them ended other than handled.
        failures: The first of those, as texts; fewer than `failed` if there are many.
    """

    partition: int
    rows: int
    items: int
    failed: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What came of all partitions.

    Attributes:
        partitions: One result per partition, by number.
    """

    partitions: tuple[PartitionResult, ...]

    @property
    def rows(self) -> int:
        """How many rows there were."""
        return sum(each.rows for each in self.partitions)

    @property
    def items(self) -> int:
        """How many items were accepted."""
        return sum(each.items for each in self.partitions)

    @property
    def failed(self) -> int:
        """How many items ended other than handled."""
        return sum(each.failed for each in self.partitions)


class PartitionsFailed(DeliveryError):
    """Items ended other than handled on executors; the other items were handled.

    Attributes:
        result: Everything that is known, the partitions that went well included.
    """

    def __init__(self, queue_name: str, result: WriteResult) -> None:
        told = tuple(
            Failure(f"partition {each.partition}: {text}", None, "failed")
            for each in result.partitions
            for text in each.failures
        )
        super().__init__(queue_name, result.failed, told)
        self.result = result
        self._first = next((str(each.item) for each in told), None)
        # What pickle calls the class with.
        self.args: tuple[object, ...] = (queue_name, result)

    def __str__(self) -> str:
        # Not the text of `Failure`, which describes an item: here items are texts.
        noun = "failure" if self.count == 1 else "failures"
        first = f"; first: {self._first}" if self._first else ""
        return f"{self.count} {noun} in queue {self.queue_name!r}{first}"


def write_partitions(
    df: DataFrame,
    open_queue: OpenQueue[T],
    *,
    to_items: ToItems[T] | None = None,
    timeout: float | None = None,
) -> WriteResult:
    """Put each partition into the queue of the process that computes it.

    The rows never pass through the driver. Each Python worker process of the executors
    opens one queue and keeps it for later partitions (see `executor_queue`). A task
    ends when everything of its partition is handled. While its queue is full it waits,
    and Spark with it.

    It is at least once: a task that dies is run again by Spark, from its first row. An
    item that fails is not a task that dies: the partition goes on, and the driver gets
    the count. Let the queue's `Retry` try again. For exactly once write to
    `format("batchqueue")`.

    Works with Spark Connect, too. The executors' Python must be able to import this
    package, and what `open_queue` and `to_items` refer to.

    Ctrl-C ends the job, but with Spark Connect; what was handled until then stays.

    Args:
        df: A batch frame.
        open_queue: Opens the queue; as for `executor_queue`.
        to_items: Makes items of a record batch, as for `push`.
        timeout: Seconds that a task waits for room at most, and then for its flush;
            None for no limit.

    Returns:
        The counts, for each partition and in sum.

    Raises:
        PartitionsFailed: A `DeliveryError`: items ended other than handled.
        PySparkException: A task failed for good, with what it raised in the text: Spark
            could not compute the rows, `open_queue` or `to_items` raised, or the queue
            closed, refused an item, or was not done in time.
        BatchQueueError: The session was stopped meanwhile.
        TypeError, ValueError: An argument is of the wrong kind; it is a streaming
            frame, or `timeout` is negative.
    """
    require_sync_function("open_queue", open_queue, 1, "one argument, a LoopThread")
    make = chosen(to_items)
    require_timeout("timeout", timeout)
    require_batch_frame(df, 'format("batchqueue")')
    ledger = watching(df)
    told = None if ledger is None else ledger.accumulator
    run = _task_function(open_queue, make, timeout, told)
    answers = _collected(map_in_arrow(df, run, _ANSWER))
    answers.sort(key=attrgetter("partition"))
    result = WriteResult(
        tuple(
            PartitionResult(it.partition, it.rows, it.items, it.failed, (*it.failures,))
            for it in answers
        )
    )
    if ledger is not None and told is None:
        for each in answers:
            handled = each.items - each.failed
            ledger.add(counted(each.queue, handled=handled, failed=each.failed))
    if result.failed:
        name = next(answer.queue for answer in answers if answer.failed)
        raise PartitionsFailed(name, result)
    return result


def _collected(frame: DataFrame) -> list[Any]:
    if is_connect(frame):
        with telling_stop(frame):
            return frame.collect()
    # On a thread of its own, so that Ctrl-C ends the job, too.
    jobs = one_ahead(frame.sparkSession.sparkContext, (it.collect() for it in [frame]))
    with closing(jobs) as found:
        return next(found)


def _task_function(
    open_queue: OpenQueue[Any],
    to_items: ToItems[Any],
    timeout: float | None,
    told: Accumulator[Report] | None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        queue = executor_queue(open_queue)
        before = queue.stats()
        rows = items = failed = 0
        failures: list[str] = []
        try:
            for batch in batches:
                rows += batch.num_rows
                items += _produce(queue, list(to_items(batch)), timeout)
        except Exception as error:
            # Flush, since a retry must not meet this attempt's items. The job is told
            # the first error; what the flush raises is only a note on it.
            try:
                queue.flush(timeout)
            except Exception as late:  # noqa: BLE001 - it is told with the first one
                add_note(error, f"the flush after it raised {reason(late)}")
            raise
        try:
            queue.flush(timeout)
        except DeliveryError as error:
            failed = error.count
            failures = [str(each) for each in error.failures[:_MOST_FAILURES]]
        if told is not None:
            told.add({queue.name: since(before, queue.stats())})
        task = TaskContext.get()
        partition = task.partitionId() if task is not None else 0
        answer = (partition, rows, items, failed, failures, queue.name)
        named = dict(zip(_ANSWER.names, answer, strict=True))
        yield pa.RecordBatch.from_pylist([named], arrow_schema(_ANSWER))

    return run


def _produce(
    queue: SyncBatchQueue[Any], items: list[Any], timeout: float | None
) -> int:
    accepted = queue.produce_many(items, timeout)
    if accepted < len(items):
        msg = (
            f"queue {queue.name!r} accepted {accepted} of {len(items)} items: it is "
            f"closed, drops new items, or had no room for {timeout} s"
        )
        raise BatchQueueError(msg)
    return accepted
