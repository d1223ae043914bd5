"""A frame's rows come to the driver as columns, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from .frames import require_frame
from .one_ahead import one_ahead
from .packed_batches import packed_batches
from .partition_batches import PartitionBatches
from .partition_groups import partition_groups
from .queries import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    for row in packed_batches(df).toLocalIterator(prefetchPartitions=True):
        yield from pa.ipc.open_stream(row.packed)


def _by_partition(df: DataFrame) -> Iterator[pa.RecordBatch]:
    # Not the frame's own iterator: in 4.3 the driver's JVM keeps all that has gone
    # through that, for good; and it takes a job for each partition.
    batches = PartitionBatches(df)
    groups = partition_groups(batches.partitions, batches.fetch)
    with closing(one_ahead(df.sparkSession.sparkContext, groups)) as ahead:
        for group in ahead:
            yield from map(batches.unpack, group)
