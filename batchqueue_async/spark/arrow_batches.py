"""A frame's rows come to the driver as columns: in bounded memory, or all at once."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark_types

from .frames import is_connect, map_in_arrow, require_frame, zoned_schema
from .partition_batches import PartitionBatches, one_ahead, partition_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    with these, so a slow caller holds Spark up. The first takes one partition, each
    other up to twice as many as the one before, at most 64: as many as are 64 MiB
    if they are like the largest so far. So memory is bound by two partitions, or two
    times 64 MiB of small ones, whatever the size of the result. They wait, packed, in
    the driver's JVM, within `spark.driver.maxResultSize`; if 64 that were expected to
    be small exceed that, they come again one by one.

    Over Spark Connect the server streams its result instead, packed by Python workers,
    which need pandas and pyarrow (Spark insists), not this package.

    An iterator that is closed, or dropped, ends the job.

    Raises:
        TypeError: It is no DataFrame, or has a column of a type that Arrow lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
    """
    require_frame(df)
    return _streamed(df) if is_connect(df) else _by_partition(df)


def _streamed(df: DataFrame) -> Iterator[pa.RecordBatch]:
    for row in _packed(df).toLocalIterator(prefetchPartitions=True):
        yield from pa.ipc.open_stream(row.packed)


def _by_partition(df: DataFrame) -> Iterator[pa.RecordBatch]:
    # Not the frame's own iterator: in 4.3 the driver's JVM keeps all that has gone
    # through that, for good; and it takes a job for each partition.
    batches = PartitionBatches(df)
    groups = partition_groups(batches.partitions, batches.fetch)
    with closing(one_ahead(df.sparkSession.sparkContext, groups)) as ahead:
        for group in ahead:
            yield from map(batches.unpack, group)


def whole_frame(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return what `arrow_batches` does, in one Spark job, all of it in memory at once.

    The rows wait as Arrow bytes, some 30 bytes for a row of four short columns, within
    `spark.driver.maxResultSize`. For small frames of many partitions, such as a
    micro-batch, it is many times faster than several jobs. They come right from the
    executors' JVMs, but over Spark Connect, if there is an array, a map or a struct
    among the columns, through Python workers, which takes up to three times as long.

    Raises:
        TypeError: It is no DataFrame, or has a column of a type that Arrow lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
    """
    require_frame(df)
    # In 4.3 `toArrow` fails where a struct may be null and its field may not.
    if all(isinstance(field.dataType, _PLAIN) for field in df.schema):
        return _plain(df)
    return _packed_in_one_job(df) if is_connect(df) else _in_one_job(df)


def _plain(df: DataFrame) -> Iterator[pa.RecordBatch]:
    for batch in df.toArrow().cast(zoned_schema(df)).to_batches():
        if batch.num_rows:
            yield batch


def _in_one_job(df: DataFrame) -> Iterator[pa.RecordBatch]:
    batches = PartitionBatches(df)
    if batches.partitions:
        yield from map(batches.unpack, batches.fetch(range(batches.partitions)))


def _packed_in_one_job(df: DataFrame) -> Iterator[pa.RecordBatch]:
    for row in _packed(df).collect():
        yield from pa.ipc.open_stream(row.packed)


def _packed(df: DataFrame) -> DataFrame:
    """Return a frame of the record batches, each in a row as Arrow's stream format."""

    # Nested, so that it travels by value: executors need not have this package.
    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                stream = pa.BufferOutputStream()
                with pa.ipc.new_stream(stream, batch.schema) as writer:
                    writer.write_batch(batch)
                value = stream.getvalue()
                # A column of one value, around the bytes as they are.
                ends = pa.py_buffer(struct.pack("=ii", 0, value.size))
                column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
                yield pa.RecordBatch.from_arrays([column], ["packed"])

    return map_in_arrow(df, packed, "packed BINARY")
