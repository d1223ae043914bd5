"""A frame's rows come to the driver as columns, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from .frames import require_frame
from .map_in_arrow import map_in_arrow
from .queries import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def arrow_batches(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return the frame's rows in their order, as record batches of pyarrow.

    Rows never become Python objects on the way: the executors pack their record batches
    (10,000 rows, `spark.sql.execution.arrow.maxRecordsPerBatch`) as Arrow bytes, and
    the driver unpacks them. Timestamps with time zones keep them.

    Spark runs one job per partition, one ahead of the caller, so a slow caller holds
    Spark up, and memory is bound by two partitions whatever the size of the result:
    they wait, packed, in the driver's JVM, within `spark.driver.maxResultSize`. Many
    small partitions cost a job each, some 30 ms of which the most is Spark's Python
    task: `df.coalesce(n)` first, which merges them before that.

    An iterator that is closed, or dropped, ends the job. The executors need pandas and
    pyarrow (Spark insists), not this package.

    Raises:
        TypeError: It is no DataFrame, or has a column of a type that Arrow lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
    """
    require_frame(df)
    return _by_partition(df)


def _by_partition(df: DataFrame) -> Iterator[pa.RecordBatch]:
    rows = map_in_arrow(df, _packer(), "packed BINARY")
    # Not the frame's own iterator where there is another: in 4.3 the driver's JVM keeps
    # all that has gone through that, for good.
    source = rows if is_connect(df) else rows.rdd
    for row in source.toLocalIterator(prefetchPartitions=True):
        yield from pa.ipc.open_stream(row.packed)


def whole_frame(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return the same in one Spark job, with all of it in memory at once.

    The rows wait as Arrow bytes, some 30 bytes for a row of four short columns, within
    `spark.driver.maxResultSize`. For small frames of many partitions, such as a
    micro-batch, it is many times faster than a job for each.

    Raises:
        TypeError: It is no DataFrame, or has a column of a type that Arrow lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
    """
    require_frame(df)
    return _at_once(df)


def _at_once(df: DataFrame) -> Iterator[pa.RecordBatch]:
    # Not `df.toArrow()`: in 4.3 that fails where a struct may be null and its field
    # may not.
    for row in map_in_arrow(df, _packer(), "packed BINARY").collect():
        yield from pa.ipc.open_stream(row.packed)


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
