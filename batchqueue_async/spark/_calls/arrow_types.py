"""Which type of Arrow's a column of Spark's is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructType

_PLAIN: Final[Mapping[type[DataType], pa.DataType]] = {
    spark_types.BooleanType: pa.bool_(),
    spark_types.ByteType: pa.int8(),
    spark_types.ShortType: pa.int16(),
    spark_types.IntegerType: pa.int32(),
    spark_types.LongType: pa.int64(),
    spark_types.FloatType: pa.float32(),
    spark_types.DoubleType: pa.float64(),
    spark_types.StringType: pa.string(),
    spark_types.CharType: pa.string(),
    spark_types.VarcharType: pa.string(),
    spark_types.BinaryType: pa.binary(),
    spark_types.DateType: pa.date32(),
    spark_types.TimestampType: pa.timestamp("us", "UTC"),
    spark_types.TimestampNTZType: pa.timestamp("us"),
    spark_types.DayTimeIntervalType: pa.duration("us"),
    spark_types.NullType: pa.null(),
}


def arrow_type(declared: DataType, column: str) -> pa.DataType:
    """Return what values of the type are made as."""
    if (plain := _PLAIN.get(type(declared))) is not None:
        return plain
    if isinstance(declared, spark_types.DecimalType):
        return pa.decimal128(declared.precision, declared.scale)
    if isinstance(declared, spark_types.ArrayType) and not _must_be_empty(declared):
        return pa.list_(arrow_type(declared.elementType, column))
    if isinstance(declared, spark_types.MapType):
        key = arrow_type(declared.keyType, column)
        return pa.map_(key, arrow_type(declared.valueType, column))
    if isinstance(declared, StructType):
        fields = [(each.name, arrow_type(each.dataType, column)) for each in declared]
        return pa.struct(fields)
    msg = (
        f"schema must have types that can be made of Python's values, got column"
        f" {column!r} of type {declared.simpleString().upper()}"
    )
    raise TypeError(msg)


def _must_be_empty(array: spark_types.ArrayType) -> bool:
    """Whether it is the type of `ARRAY()`, for which Arrow has none."""
    return (
        isinstance(array.elementType, spark_types.NullType) and not array.containsNull
    )
