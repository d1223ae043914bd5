"""A frame's rows come to the driver as columns, all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark_types

from .arrow_batches import packed_batches
from .frames import require_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

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
    micro-batch, it is many times faster than several jobs. Columns without parts come
    right from the executors' JVMs; with an array, a map or a struct among them all go
    through Python workers, which takes up to three times as long.

    Raises:
        TypeError: It is no DataFrame, or has a column of a type that Arrow lacks.
        PySparkException: Spark cannot compute the rows, or send them as Arrow.
    """
    require_frame(df)
    return _plain_batches(df) if _is_plain(df.schema) else _packed_by_workers(df)


def _is_plain(schema: StructType) -> bool:
    # In 4.3 `toArrow` fails where a struct may be null and its field may not.
    return all(isinstance(field.dataType, _PLAIN) for field in schema)


def _plain_batches(df: DataFrame) -> Iterator[pa.RecordBatch]:
    table = df.toArrow()
    # It has UTC for all timestamps; where Python workers are asked it is this one.
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
    for batch in table.cast(_in_zone(table.schema, zone)).to_batches():
        if batch.num_rows:
            yield batch


def _in_zone(schema: pa.Schema, zone: str | None) -> pa.Schema:
    return pa.schema(
        field.with_type(pa.timestamp(field.type.unit, zone))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in schema
    )


def _packed_by_workers(df: DataFrame) -> Iterator[pa.RecordBatch]:
    for row in packed_batches(df).collect():
        yield from pa.ipc.open_stream(row.packed)
