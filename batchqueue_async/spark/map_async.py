"""Asynchronous calls inside of a frame: a service, a database, a model for its rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.accumulators import AddingAccumulatorParam

from batchqueue_async import Retry
from batchqueue_async._validation import refuse
from batchqueue_async.sinks.checks import require_name

from ._calls.declared import declare
from ._calls.options import Call, CallOptions, OnError, Open
from ._calls.task import CallTask
from .executor_stats import CallCounts, accumulator_of
from .frames import is_connect, map_in_arrow, require_frame, require_names_that_differ
from .items import to_dicts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_ONCE = Retry()
# Spark adds by `+=`, for which `__add__` is enough.
_ADDING = AddingAccumulatorParam(CallCounts())  # type: ignore[type-var]

_counts: WeakKeyDictionary[object, Accumulator[CallCounts]] = WeakKeyDictionary()


def map_async(  # noqa: PLR0913 - all that is declared for its calls
    df: DataFrame,
    call: Call,
    schema: StructType | str,
    *,
    open: Open | None = None,  # noqa: A002 - `with` has this name for it
    to_items: Callable[[pa.RecordBatch], Iterable[Any]] = to_dicts,
    max_batch: int = 100,
    linger: float = 0.0,
    in_flight: int = 8,
    ordered: bool = True,
    reorder_buffer: int | None = None,
    timeout: float | None = None,
    retry: Retry = _ONCE,
    rate: float | None = None,
    flat: bool = False,
    on_error: OnError = "raise",
    error_column: str = "error",
) -> DataFrame:
    """Return a frame whose rows are what an async function makes of this one's.

    For services, databases and models that are called over a network: calls wait side
    by side, on the loop thread of each Python worker process, and go on flowing while
    Spark delivers the next rows. Nothing is called before Spark needs the rows. For
    batch and streaming frames, of classic sessions and of Spark Connect.

    Calls happen at least once: a task that fails, or whose process is killed, is run
    again by Spark with all its calls, and so is each `count` or `show` of a frame that
    isn't cached. Each row of the output appears exactly once. `idempotency_key` helps a
    service to tell what it has done already.

    Memory is bound by the calls in flight and two of Spark's record batches (of
    `spark.sql.execution.arrow.maxRecordsPerBatch` rows), with what waits for a call
    that is tried again: when those are full, Spark waits. A call that blocks
    (`requests`, `time.sleep`) blocks all others of its process. Executors need this
    package, and what `call` refers to.

    Args:
        df: The rows that calls are made for.
        call: `async def call(batch)` or, with `open`, `async def call(client, batch)`.
            It gets a list of items and returns a list with one result for each, in
            their order. A result is a dict with all columns of `schema` (others are
            ignored), a Row or NamedTuple, also by name, or a tuple, by position. For an
            item that is a record batch it is a record batch. What it raises fails the
            call; `RetryAfter` asks for a pause; `PartialFailure(failed, results=...)`
            has the failed items alone tried again, and keeps the others' results.
        schema: The columns of the results: a StructType, or DDL such as "id BIGINT". A
            naive datetime is taken as UTC, an int for a TIMESTAMP as microseconds.
        open: Returns an async context manager, whose value is the client, such as
            `aiohttp.ClientSession`. One is opened in each Python worker process, by its
            first call, and used by all of this `map_async`, from task to task. It is
            closed when the process ends in good order; Spark mostly kills its workers.
        to_items: Makes items of rows: `to_dicts`, `to_tuples`, `to_objects(Type)`,
            `to_batches` or a function of yours, of a record batch of at most
            `max_batch` rows. It runs on the loop, right before the call.
        max_batch: How many items a call gets at most. Record batches count their rows.
        linger: Seconds that the first items of a call wait for more, where Spark
            delivers less than a full call.
        in_flight: How many calls run at the same time, at most, in each task. Those
            that wait for their retry, or for `rate`, count; with `ordered` those that
            are finished before an earlier one, too, but for the `reorder_buffer`.
        ordered: Whether rows keep their order within a partition. Without it one slow
            call holds nobody up.
        reorder_buffer: How many finished calls may wait for an earlier one without
            counting as in flight, where rows keep their order. Until as many of them
            wait, that one holds nobody up. Their results are in memory. None: as many
            as one of Spark's record batches makes calls, if the earlier one has failed
            and is tried again; a slow one holds those behind it up. 0: any one does.
        timeout: Seconds for each attempt, after which it is cancelled; None for no
            limit. Waiting for `rate`, and opening the client, don't count.
        retry: How often a call is tried, as in `BatchQueueConfig`; `split` and
            `split_on` halve calls until the items that fail are alone.
        rate: How many calls, further attempts included, begin per second and Python
            worker process, evenly spread; None for no limit. A cluster runs as many
            processes as it has cores for tasks: divide a service's limit by that.
        flat: Whether each result is a list, of any number of rows.
        on_error: What becomes of items whose call failed for good. "raise": the task
            fails with the error, and Spark runs it again. "null": a row of nulls.
            "column": such a row, too, and every row has the input's columns as well,
            before the results', and the error's text, or null, in `error_column`. Where
            both have a column of one name it is the result's, and the input's where
            there is none. Needs one item per row.
        error_column: The name of that column.

    Raises:
        TypeError, ValueError: An argument is wrong; it says which and why, and nothing
            has run.
        PySparkException: When the frame is computed: a task failed for good, with what
            the call, `open` or `to_items` raised.
    """
    options = CallOptions(
        key=uuid.uuid4().hex,
        call=call,
        open=open,
        to_items=to_items,
        max_batch=max_batch,
        linger=linger,
        in_flight=in_flight,
        ordered=ordered,
        reorder_buffer=reorder_buffer,
        timeout=timeout,
        retry=retry,
        rate=rate,
        flat=flat,
        on_error=on_error,
    )
    require_name("error_column", error_column)
    require_frame(df)
    if to_items is to_dicts:
        require_names_that_differ(df.columns, "dicts")
    given = df.schema if on_error == "column" else None
    declared = declare(schema, given, on_error, error_column)
    counts = None
    if not is_connect(df):
        context = df.sparkSession.sparkContext
        counts = context.accumulator(CallCounts(), _ADDING)
    task = CallTask(options, declared, counts, accumulator_of(df))
    made = map_in_arrow(df, task, declared.schema)
    if counts is not None:
        _counts[made] = counts
    return made


def call_counts(df: DataFrame) -> CallCounts:
    """Return how many calls a frame of `map_async` has made so far, and for what.

    Counts come from accumulators of Spark's: a task's are added when it ends well, and
    again when the frame is computed again. Frames derived from it have none.

    Args:
        df: What `map_async` returned.

    Raises:
        ValueError: It isn't, or belongs to Spark Connect, which has no accumulators.
    """
    if is_connect(df):
        msg = "Spark Connect has no counts of calls: it has no accumulators"
        raise ValueError(msg)
    try:
        counts = _counts.get(df)
    except TypeError:  # there are no weak references to an int, for instance
        counts = None
    if counts is None:
        refuse("df", "what map_async returned", df)
    return counts.value
