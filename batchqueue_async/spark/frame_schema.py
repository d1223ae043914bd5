"""What a sink is told of a frame's columns besides its record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DayTimeIntervalType,
    NullType,
    StructType,
    VariantType,
)

from .frames import parts_of, require_columns, require_names_that_differ

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark writes it into its own Parquet files, and reads them by it: there are types that
# Parquet's don't tell from others.
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_UNTOLD = (DayTimeIntervalType, NullType, VariantType)
# Offsets of 64 bits in texts and bytes.
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a frame's record batches.

    With it goes Spark's own, if there is a type that Parquet's alone don't tell.

    Raises:
        ValueError: A column is of a type that Arrow doesn't have, two have one name, or
            there are none.
    """
    require_columns(schema.names)
    require_names_that_differ(schema.names, "a sink")
    fields = []
    for field in schema:
        try:
            fields += _in_arrow(StructType([field]), "UTC")
        # Of an array of nulls without nulls, such as ARRAY(), it is a ValueError.
        except (PySparkException, ValueError) as error:
            msg = (
                f"column {field.name!r} must be of a type that Arrow has, got"
                f" {field.dataType.simpleString()}: cast it to another, such as string"
            )
            raise ValueError(msg) from error
    has_untold = any(isinstance(it, _UNTOLD) for it in parts_of(schema))
    metadata = {_SPARK_SCHEMA: schema.json().encode()} if has_untold else None
    return pa.schema(fields, metadata=metadata)


def zoned_schema(df: DataFrame) -> pa.Schema:
    """Return the schema of a frame's record batches as Python workers get them.

    Their timestamps are of the session's zone, where `toArrow` has UTC, and their texts
    are as large as the session's record batches have them: who reads one with a schema
    that differs in that gets other texts, and no error.
    """
    conf = df.sparkSession.conf
    zone = conf.get("spark.sql.session.timeZone")
    is_large = conf.get(_LARGE, "false") == "true"
    return pa.schema(
        field.with_type(pa.timestamp(field.type.unit, zone))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in _in_arrow(df.schema, zone, is_large=is_large)
    )


def _in_arrow(
    schema: StructType, zone: str | None, *, is_large: bool = False
) -> pa.Schema:
    # Its arguments differ between versions of Spark; the zone changes no value.
    takes = signature(to_arrow_schema).parameters
    wanted: dict[str, Any] = {"timezone": zone, "prefers_large_types": is_large}
    given = {name: it for name, it in wanted.items() if name in takes}
    return to_arrow_schema(schema, **given)


def with_types(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Return the record batches, with what `arrow_schema` notes of types."""
    noted = schema.metadata
    for batch in batches:
        yield batch if noted is None else batch.replace_schema_metadata(noted)
