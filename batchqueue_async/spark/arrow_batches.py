"""A frame's rows come to the driver as columns: in bounded memory, or all at once.

The executors' JVMs make record batches of some of its partitions. These are fetched
several at a time, as many as should fit into some memory, and the next ones while the
caller is busy with those before.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD, InheritableThread
from pyspark.serializers import NoOpSerializer
from pyspark.sql import types as spark_types

from batchqueue_async import BatchQueueError

from ._shuffles import Shuffles
from .frames import (
    is_connect,
    is_of_stopped,
    is_stopped,
    map_in_arrow,
    require_frame,
    zoned_schema,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
# Seconds after which a job that still runs is cancelled again.
_AGAIN = 0.1

Fetch: TypeAlias = Callable[[Sequence[int]], list[bytes]]
"""What runs a job over partitions, and returns their rows as bytes, in order."""

_MOST_BYTES: Final = 64 * 2**20
_MOST_PARTITIONS: Final = 64
_GROWTH: Final = 2
# What Spark says when a job has brought more than the driver takes.
_TOO_LARGE: Final = "spark.driver.maxResultSize"
# What Connect's server says of a session that was stopped, or timed out.
_CLOSED: Final = "INVALID_HANDLE.SESSION_CLOSED"
_PLAIN = (
    spark_types.BinaryType,
    spark_types.BooleanType,
    spark_types.DateType,
    spark_types.NumericType,
    spark_types.StringType,
    spark_types.TimestampNTZType,
    spark_types.TimestampType,
)


def arrow_batches(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return the frame's rows in their order, as record batches of pyarrow.

    Rows never become Python objects on the way: the executors' JVMs make record batches
    of them (10,000 rows, `spark.sql.execution.arrow.maxRecordsPerBatch`), as bytes that
    the driver reads as they are. Timestamps with time zones keep them.

    Spark runs a job for several partitions, and the next one while the caller is busy
    with these, so a slow caller holds Spark up. The first job takes one partition, each
    other one up to twice as many as the one before, but 64 at most, and no more than 64
    MiB if all are as large as the largest so far. So memory is bound by two partitions,
    or two times 64 MiB of small ones, whatever the size of the result. They wait as
    Arrow bytes in the driver's JVM, within `spark.driver.maxResultSize`; if a job
    exceeds that, its partitions are fetched again one by one.

    Over Spark Connect the server streams its result instead, packed by Python workers,
    which need pandas and pyarrow (Spark insists), not this package.

    An iterator that is closed, or dropped, ends the job.

    Raises:
        TypeError, ValueError: It is no DataFrame, or has a column of a type that Arrow
            lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
        BatchQueueError: The session is stopped before all rows have come; or rows were
            lost with an executor, and came out otherwise when Spark computed them
            again, as where they depend on chance.
    """
    require_frame(df)
    return _packed(df, is_streamed=True) if is_connect(df) else _by_partition(df)


def _by_partition(df: DataFrame) -> Iterator[pa.RecordBatch]:
    # Not the frame's `toLocalIterator`: in Spark 4.3 the driver's JVM keeps for good
    # all that this delivers, and it runs a job for each partition.
    with closing(one_ahead(df.sparkSession.sparkContext, _fetched(df))) as ahead:
        for batches, group in ahead:
            yield from map(batches.unpack, group)
    _tell_observations(df)


def _fetched(df: DataFrame) -> Iterator[tuple[_PartitionBatches, list[bytes]]]:
    """Yield what job after job brings. To be called by `one_ahead`.

    Before the first one Spark runs the stages that come before a shuffle, so that a
    Ctrl-C or a `stop` of the session has to end these, too.
    """
    batches = _PartitionBatches(df)
    for group in partition_groups(batches.partitions, batches.fetch):
        yield batches, group


def whole_frame(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return what `arrow_batches` does, in one Spark job, all of it in memory at once.

    The rows wait as Arrow bytes, some 30 bytes for a row of four short columns, within
    `spark.driver.maxResultSize`. For small frames of many partitions, such as a
    micro-batch, it is many times faster than several jobs. They come right from the
    executors' JVMs, but over Spark Connect, if there is an array, a map or a struct
    among the columns, through Python workers, which takes up to three times as long.

    Raises:
        TypeError, ValueError: It is no DataFrame, or has a column of a type that Arrow
            lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
        BatchQueueError: The session is stopped before all rows have come.
    """
    require_frame(df)
    # In 4.3 `toArrow` fails where a struct may be null and its field may not.
    if all(isinstance(field.dataType, _PLAIN) for field in df.schema):
        return _plain(df)
    return _packed(df, is_streamed=False) if is_connect(df) else _in_one_job(df)


def _plain(df: DataFrame) -> Iterator[pa.RecordBatch]:
    with telling_stop(df):
        found = df.toArrow()
    for batch in found.cast(zoned_schema(df)).to_batches():
        if batch.num_rows:
            yield batch


def _in_one_job(df: DataFrame) -> Iterator[pa.RecordBatch]:
    with telling_stop(df):
        batches = _PartitionBatches(df)
        found = batches.fetch(range(batches.partitions)) if batches.partitions else []
    yield from map(batches.unpack, found)
    _tell_observations(df)


def _packed(df: DataFrame, *, is_streamed: bool) -> Iterator[pa.RecordBatch]:
    """Return record batches that Python workers pack, one per row, as Arrow streams."""

    # Nested, so that it travels by value: executors need not have this package.
    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                stream = pa.BufferOutputStream()
                with pa.ipc.new_stream(stream, batch.schema) as writer:
                    writer.write_batch(batch)
                value = stream.getvalue()
                # A column of one value, which shares the bytes instead of copying them.
                ends = pa.py_buffer(struct.pack("=ii", 0, value.size))
                column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
                yield pa.RecordBatch.from_arrays([column], ["packed"])

    frame = map_in_arrow(df, packed, "packed BINARY")
    streamed = partial(frame.toLocalIterator, prefetchPartitions=True)
    with telling_stop(df):
        for row in streamed() if is_streamed else frame.collect():
            yield from pa.ipc.open_stream(row.packed)


class _PartitionBatches:
    """A frame of a classic session, which can be computed by parts.

    Spark's own `toArrow` does the same, for all partitions at once. To find out how
    many there are, Spark may run earlier stages.
    """

    def __init__(self, df: DataFrame) -> None:
        self._session = df.sparkSession
        self._schema = zoned_schema(df)
        self._in_jvm: Any = df._jdf  # noqa: SLF001 - there is no other way
        rdd_in_jvm = self._in_jvm.toArrowBatchRdd()
        context = self._session.sparkContext
        self._shuffles = Shuffles(self._session, rdd_in_jvm)
        self._rdd = RDD[Any](rdd_in_jvm.toJavaRDD(), context, NoOpSerializer())
        self.partitions: int = self._rdd.getNumPartitions()

    def fetch(self, partitions: Sequence[int]) -> list[bytes]:
        """Run a job; return the record batches of these partitions, in their order.

        Raises:
            BatchQueueError: Others of them would not fit what earlier jobs brought.
        """
        # `runJob` gets the RDD itself, so that tasks need no Python worker.
        job: Any = SimpleNamespace(mapPartitions=lambda _: self._rdd)
        with _settings_for_tasks(self._session):
            found = self._session.sparkContext.runJob(job, iter, partitions)
        if len(partitions) < self.partitions:
            self._shuffles.require_same()
        return found

    def unpack(self, packed: bytes) -> pa.RecordBatch:
        """Return what was fetched as a record batch."""
        return pa.ipc.read_record_batch(pa.py_buffer(packed), self._schema)


def _tell_observations(df: DataFrame) -> None:
    """Complete the frame's `Observation`s: all rows have been computed.

    Spark does so for what it runs as a query. Who waits in `Observation.get` would wait
    for ever.
    """
    # Another version of Spark may have no such method.
    with contextlib.suppress(Py4JError):
        in_jvm: Any = df._jdf  # noqa: SLF001 - there is no other way
        manager = in_jvm.sparkSession().observationManager()
        manager.tryComplete(in_jvm.queryExecution())


@contextmanager
def _settings_for_tasks(session: SparkSession) -> Iterator[None]:
    """Send a session's settings with the jobs of this thread.

    Spark does so for a whole frame, but not for a job over some partitions; some SQL
    functions read them on executors.
    """
    context, settings = session.sparkContext, session.conf.getAll
    ours = {key: it for key, it in settings.items() if key.startswith("spark.sql.")}
    before: dict[str, Any] = {key: context.getLocalProperty(key) for key in ours}
    try:
        for key, value in ours.items():
            context.setLocalProperty(key, value)
        yield
    finally:
        for key, earlier in before.items():
            context.setLocalProperty(key, earlier)


def partition_groups(partitions: int, fetch: Fetch) -> Iterator[list[bytes]]:
    """Yield the results of job after job, each over the next partitions.

    The first takes one, each other up to twice as many as the one before, but no
    more than 64, nor more than 64 MiB if they are as large as the largest so far: so
    partitions that are larger than that come one by one. The size of a partition is
    known only when it is there. If a job brings more than the driver takes, its
    partitions are fetched again, one by one.
    """
    left, size, largest = range(partitions), 1, 1
    while left:
        group = left[:size]
        try:
            found = fetch(group)
        except Exception as error:
            if len(group) == 1 or _TOO_LARGE not in str(error):
                raise
            largest, size = _MOST_BYTES, 1
            continue
        left = left[len(group) :]
        largest = max(largest, sum(map(len, found)) // len(group))
        fits = _MOST_BYTES // largest
        size = max(1, min(fits, size * _GROWTH, _MOST_PARTITIONS))
        yield found


def one_ahead(context: SparkContext, made: Iterable[T]) -> Generator[T, None, None]:
    """Yield an iterable's items, which Spark jobs make; the next job runs meanwhile.

    The jobs run on threads that have the caller's job group and its other properties.
    Closing the iterator cancels the job that runs, and so does Ctrl-C while it is
    waited for. On the thread that Ctrl-C strikes Spark 4.3 would not: it would ask for
    that on the connection on which its own call waits.
    """
    source, tag = iter(made), f"batchqueue-{uuid.uuid4().hex}"

    def make(future: Future[tuple[T, ...]]) -> None:
        try:
            context.addJobTag(tag)
            # An empty tuple at the end.
            future.set_result((*islice(source, 1),))
        except BaseException as error:  # noqa: BLE001  # raised by who takes it
            future.set_exception(_stopped(error) if is_stopped(context) else error)

    def begin() -> tuple[Future[tuple[T, ...]], InheritableThread]:
        if is_stopped(context):
            raise _stopped(None)
        future: Future[tuple[T, ...]] = Future()
        thread = InheritableThread(target=make, args=(future,))
        thread.start()
        return future, thread

    future, thread = begin()
    try:
        while found := future.result():
            future, thread = begin()
            yield found[0]
    finally:
        while thread.is_alive():
            # Again and again: its job may not have begun yet. A stop, which Spark tells
            # in either way, ends it, too.
            with contextlib.suppress(Py4JError, AttributeError):
                context.cancelJobsWithTag(tag)
            thread.join(_AGAIN)


def _stopped(cause: BaseException | None) -> BatchQueueError:
    # Spark itself would raise an assertion without a text, an AttributeError, or what
    # Java says of the job.
    told = BatchQueueError("the session was stopped before all rows of df had come")
    told.__cause__ = cause
    return told


@contextmanager
def telling_stop(df: DataFrame) -> Iterator[None]:
    """Let what Spark says of a session that was stopped meanwhile be a sentence."""
    try:
        yield
    except Exception as error:
        # Over Connect a stop has the server end what runs, and then the client.
        if _CLOSED not in str(error) and not is_of_stopped(df):
            raise
        raise _stopped(error) from error
