"""A frame: what is refused of it, its columns' types, and functions over its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StringType,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from batchqueue_async._wording import shown

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

Function: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# The key of Spark's own schema in its Parquet files, by which it reads them: Parquet's
# types don't tell all of Spark's apart.
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_UNTOLD = (DayTimeIntervalType, NullType, UserDefinedType, VariantType)
# Spark's setting for offsets of 64 bits in texts and bytes.
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


def require_frame(df: Any) -> None:  # noqa: ANN401 - it is looked at
    """Refuse anything but a frame whose rows Spark can send to Python.

    For a type that Arrow in Python lacks, Spark's own error comes from a worker, and
    says "KeyError: 21". Without columns Spark's record batches have no rows.
    """
    if not hasattr(df, "mapInArrow"):
        kind = type(df)
        if kind.__name__ == "DataFrame":
            msg = f"df must be a DataFrame of Spark's, got one of {kind.__module__}"
        else:
            msg = f"df must be a DataFrame, got {shown(df)}"
        raise TypeError(msg)
    if not is_connect(df):
        require_running(df.sparkSession)
    require_columns(df.schema.names)
    for field in df.schema:
        if any(
            isinstance(it, YearMonthIntervalType) for it in parts_of(field.dataType)
        ):
            msg = (
                "df must have columns that Arrow in Python knows, got column"
                f" {field.name!r} of type {field.dataType.simpleString().upper()}:"
                " cast INTERVAL YEAR TO MONTH in Spark, such as to INTERVAL MONTH and"
                " then to INT"
            )
            raise TypeError(msg)


def require_running(spark: SparkSession) -> None:
    """Refuse a classic session that was stopped, which a frame belongs to.

    Spark itself would raise an assertion without a text, or blame something else.
    """
    if is_stopped(spark.sparkContext):
        msg = "df must belong to a session that runs, got one of a stopped session"
        raise ValueError(msg)


def is_stopped(context: SparkContext) -> bool:
    """Whether a session was stopped, or is just being: its jobs end first.

    PySpark lets go of Java's context when all of that has ended. Java's own may also be
    stopped without PySpark, as by the cluster's manager.
    """
    in_jvm: Any = context._jsc  # noqa: SLF001 - there is no other way
    if in_jvm is None:
        return True
    try:
        return bool(in_jvm.sc().isStopped())
    except Py4JError:
        return False  # the JVM itself is gone, which is another story


def is_of_stopped(df: DataFrame) -> bool:
    """Whether a frame's session was stopped, here or, over Connect, on the server."""
    session: Any = df.sparkSession
    if is_connect(df):
        return bool(session.is_stopped)
    return is_stopped(session.sparkContext)


def require_columns(names: Sequence[str]) -> None:
    """Refuse a frame without columns."""
    if not names:
        msg = "df must have one column or more, got none"
        raise ValueError(msg)


def require_names_that_differ(names: Sequence[str], needed_for: str) -> None:
    """Refuse names of which one comes twice."""
    if len({*names}) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        msg = (
            f"df must have columns whose names differ for {needed_for}, got"
            f" {shown(twice)} more than once"
        )
        raise ValueError(msg)


def require_batch_frame(df: object, instead: str) -> None:
    """Refuse anything but a frame whose rows come to an end."""
    require_frame(df)
    if getattr(df, "isStreaming", False):
        msg = f"df must be a batch frame, got a stream; use {instead}"
        raise ValueError(msg)


def parts_of(kind: DataType) -> Iterator[DataType]:
    """Yield the type and all that it is made of."""
    yield kind
    if isinstance(kind, ArrayType):
        yield from parts_of(kind.elementType)
    elif isinstance(kind, MapType):
        yield from parts_of(kind.keyType)
        yield from parts_of(kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind:
            yield from parts_of(field.dataType)


def is_connect(df: object) -> bool:
    """Whether the frame belongs to Spark Connect, where there are no RDDs."""
    return ".connect." in type(df).__module__


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a frame's record batches.

    Its metadata has Spark's own schema, if Parquet's types alone don't tell its types.
    """
    require_columns(schema.names)
    require_names_that_differ(schema.names, "a sink")
    fields = _in_arrow(schema, "UTC")
    has_untold = any(map(_is_untold, parts_of(schema)))
    metadata = {_SPARK_SCHEMA: schema.json().encode()} if has_untold else None
    return pa.schema(fields, metadata=metadata)


def _is_untold(kind: DataType) -> bool:
    is_collated = isinstance(kind, StringType) and kind != StringType()
    return is_collated or isinstance(kind, _UNTOLD)


def zoned_schema(df: DataFrame) -> pa.Schema:
    """Return the schema of a frame's record batches as Python workers get them.

    Their timestamps are of the session's zone, where `toArrow` has UTC, and their texts
    have offsets as large as the session says: a record batch that is read with other
    ones has other texts, without an error.
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
    # Arguments of Spark's function differ by version; the zone changes no value.
    takes = signature(to_arrow_schema).parameters
    wanted: dict[str, Any] = {"timezone": zone, "prefers_large_types": is_large}
    given = {name: it for name, it in wanted.items() if name in takes}
    fields: list[pa.Field] = []
    # One by one: the errors don't say which column it is.
    for field in schema:
        try:
            fields += to_arrow_schema(StructType([field]), **given)
        # For an array of nulls without nulls, such as ARRAY(), it is a ValueError.
        except (PySparkException, ValueError) as error:
            msg = (
                f"column {field.name!r} must be of a type that Arrow has, got"
                f" {field.dataType.simpleString()}: cast it to another, such as string"
            )
            raise ValueError(msg) from error
    return pa.schema(fields)


def with_types(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Return the record batches with the metadata of `arrow_schema`, if it has any."""
    noted = schema.metadata
    for batch in batches:
        yield batch if noted is None else batch.replace_schema_metadata(noted)


def map_in_arrow(
    df: DataFrame, function: Function, schema: StructType | str
) -> DataFrame:
    """Return what `df.mapInArrow` does.

    Spark 4.3 looks the frame's columns up by their names, where a dot leads into a
    struct, and names that differ in case only are one. So such columns are renamed on
    their way.
    """
    names = df.columns
    is_plain = not any("." in name or "`" in name for name in names)
    if is_plain and len({name.casefold() for name in names}) == len(names):
        return df.mapInArrow(function, schema)

    # Nested, so that it travels by value: executors need not have this package.
    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    plain = df.toDF(*(f"c{number}" for number in range(len(names))))
    return plain.mapInArrow(renamed, schema)
