"""A frame's rows come to the driver as columns, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .frames import require_frame
from .map_in_arrow import map_in_arrow
from .one_ahead import one_ahead
from .partition_groups import partition_groups
from .queries import is_connect

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame


def arrow_batches(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return the frame's rows in their order, as record batches of pyarrow.

    Rows never become Python objects on the way: the executors pack their record batches
    (10,000 rows, `spark.sql.execution.arrow.maxRecordsPerBatch`) as Arrow bytes, and
    the driver unpacks them. Timestamps with time zones keep them.

    Spark runs a job for several partitions, and the next one while the caller is busy
    with these, so a slow caller holds Spark up. The first takes one partition, each
    other up to twice as many as the one before, at most 64: as many as are 64 MiB
    if they are like the largest so far. So memory is bound by two partitions, or two
    times 64 MiB of small ones, whatever the size of the result. They wait, packed, in
    the driver's JVM, within `spark.driver.maxResultSize`; if 64 that were expected to
    be small exceed that, they come again one by one. Over Spark Connect the server
    streams its result instead.

    An iterator that is closed, or dropped, ends the job. The executors need pandas and
    pyarrow (Spark insists), not this package.

    Raises:
        TypeError: It is no DataFrame, or has a column of a type that Arrow lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
    """
    require_frame(df)
    return _by_partition(df)


def _by_partition(df: DataFrame) -> Iterator[pa.RecordBatch]:
    rows = packed_batches(df)
    if is_connect(df):
        for row in rows.toLocalIterator(prefetchPartitions=True):
            yield from pa.ipc.open_stream(row.packed)
        return
    # Not the frame's own iterator: in 4.3 the driver's JVM keeps all that has gone
    # through that, for good; and it takes a job for each partition.
    context, rdd = df.sparkSession.sparkContext, rows.rdd

    def fetched(partitions: Sequence[int]) -> list[bytes]:
        job: Any = _AsItIs(rdd)
        found = context.runJob(job, iter, partitions)
        return [row.packed for row in found]

    groups = partition_groups(rdd.getNumPartitions(), fetched)
    with closing(one_ahead(context, groups)) as ahead:
        for group in ahead:
            for packed in group:
                yield from pa.ipc.open_stream(packed)


class _AsItIs:
    """What `runJob` takes for an RDD; spares each task the way through Python again."""

    def __init__(self, rdd: RDD[Any]) -> None:
        self._rdd = rdd

    def mapPartitions(self, _: object) -> RDD[Any]:  # noqa: N802  # Spark's name
        return self._rdd


def packed_batches(df: DataFrame) -> DataFrame:
    """Return a frame of the record batches, each in a row as Arrow's stream format."""
    return map_in_arrow(df, _packer(), "packed BINARY")


def _packer() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Nested, so that it travels by value: executors need not have this package.
    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from struct import pack  # noqa: PLC0415  # on the executor

        import pyarrow as pa  # noqa: PLC0415

        for batch in batches:
            if batch.num_rows:
                stream = pa.BufferOutputStream()
                with pa.ipc.new_stream(stream, batch.schema) as writer:
                    writer.write_batch(batch)
                value = stream.getvalue()
                # A column of one value, around the bytes as they are.
                ends = pa.py_buffer(pack("=ii", 0, value.size))
                column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
                yield pa.RecordBatch.from_arrays([column], ["packed"])

    return packed
