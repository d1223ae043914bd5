"""A frame's rows come to the driver as columns, all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark_types

from .frame_schema import zoned_schema
from .frames import require_frame
from .packed_batches import packed_batches
from .partition_batches import PartitionBatches
from .queries import is_connect

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
    return _packed_by_workers(df) if is_connect(df) else _in_one_job(df)


def _plain(df: DataFrame) -> Iterator[pa.RecordBatch]:
    for batch in df.toArrow().cast(zoned_schema(df)).to_batches():
        if batch.num_rows:
            yield batch


def _in_one_job(df: DataFrame) -> Iterator[pa.RecordBatch]:
    batches = PartitionBatches(df)
    if batches.partitions:
        yield from map(batches.unpack, batches.fetch(range(batches.partitions)))


def _packed_by_workers(df: DataFrame) -> Iterator[pa.RecordBatch]:
    for row in packed_batches(df).collect():
        yield from pa.ipc.open_stream(row.packed)
