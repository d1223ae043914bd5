"""What a `map_async` returns: its columns for Spark, and how they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StringType, StructField, StructType

from batchqueue_async._validation import refuse
from batchqueue_async._wording import shown

from .options import OnError
from .results import Column

# Not CHAR and VARCHAR: Spark refuses them in what a function in Python returns.
_PLAIN: Final[Mapping[type[DataType], pa.DataType]] = {
    spark_types.BooleanType: pa.bool_(),
    spark_types.ByteType: pa.int8(),
    spark_types.ShortType: pa.int16(),
    spark_types.IntegerType: pa.int32(),
    spark_types.LongType: pa.int64(),
    spark_types.FloatType: pa.float32(),
    spark_types.DoubleType: pa.float64(),
    spark_types.StringType: pa.string(),
    spark_types.BinaryType: pa.binary(),
    spark_types.DateType: pa.date32(),
    spark_types.TimestampType: pa.timestamp("us", "UTC"),
    spark_types.TimestampNTZType: pa.timestamp("us"),
    spark_types.DayTimeIntervalType: pa.duration("us"),
    spark_types.NullType: pa.null(),
}


class OutputColumn(NamedTuple):
    """A column, with its index among the input's and among the results', or None.

    The column that is in neither is the error's.
    """

    name: str
    of_input: int | None
    of_result: int | None


@dataclass(frozen=True)
class DeclaredColumns:
    """What is known of the results before there are any.

    Attributes:
        schema: The schema of the returned frame.
        columns: The columns of the results.
        output: The columns of the frame; None if they are just the results'.
    """

    schema: StructType
    columns: tuple[Column, ...]
    output: tuple[OutputColumn, ...] | None


def declare(
    schema: StructType | str,
    input_schema: StructType | None,
    on_error: OnError,
    error_column: str,
) -> DeclaredColumns:
    """Return what the frame will be; `input_schema` is needed for "column" only."""
    fields = _parsed(schema)
    _refuse_twice("schema", fields.names)
    columns = tuple(
        Column(
            each.name,
            _arrow_type(each.dataType, each.name),
            each.dataType.simpleString().upper(),
            each.nullable,
        )
        for each in fields
    )
    if on_error == "raise":
        return DeclaredColumns(fields, columns, None)
    nullable = StructType([StructField(each.name, each.dataType) for each in fields])
    if on_error == "null" or input_schema is None:
        return DeclaredColumns(nullable, columns, None)
    return _beside_input(columns, nullable, input_schema, error_column)


def _parsed(schema: StructType | str) -> StructType:
    rule = 'a StructType, or columns in DDL such as "id BIGINT, city STRING"'
    if isinstance(schema, str):
        try:
            parsed: object = DataType.fromDDL(schema)
        except Exception as error:  # noqa: BLE001 - classic and Connect raise others
            # Spark's own text goes on for lines, and points at places in the DDL.
            what = str(error).strip().partition("\n")[0]
            msg = f"schema must be {rule}, got {shown(schema)}: {what}"
            raise ValueError(msg) from None
        if not isinstance(parsed, StructType) or not parsed.fields:
            refuse("schema", rule, schema)
        return parsed
    if not isinstance(schema, StructType):
        refuse("schema", rule, schema, TypeError)
    if not schema.fields:
        refuse("schema", "of one column or more", schema)
    return schema


def _beside_input(
    columns: tuple[Column, ...],
    results: StructType,
    given: StructType,
    error_column: str,
) -> DeclaredColumns:
    """Return the input's columns, then those that only results have, then the error's.

    A column of both is the result's, and the input's where the call failed.
    """
    _refuse_twice("df", given.names)
    places = {name.casefold(): at for at, name in enumerate(results.names)}
    fields: list[StructField] = []
    output: list[OutputColumn] = []
    for at, field in enumerate(given):
        place = places.pop(field.name.casefold(), None)
        if place is not None:
            _refuse_other_type(field, results[place])
            # Values of either: also inside, null is whatever one of them may have.
            field = StructField(field.name, _with_nulls(field))  # noqa: PLW2901
        fields.append(field)
        output.append(OutputColumn(field.name, at, place))
    for place in places.values():
        fields.append(results[place])
        output.append(OutputColumn(results[place].name, None, place))
    if error_column.casefold() in {each.name.casefold() for each in fields}:
        refuse("error_column", "a name that no other column has", error_column)
    fields.append(StructField(error_column, StringType()))
    output.append(OutputColumn(error_column, None, None))
    return DeclaredColumns(StructType(fields), columns, tuple(output))


def _refuse_twice(field: str, names: list[str]) -> None:
    # Case is ignored, as Spark does by default.
    counts = Counter(name.casefold() for name in names)
    for name in names:
        if counts[name.casefold()] > 1:
            refuse(field, "of columns whose names differ, not only in case", name)


def _with_nulls(field: StructField) -> DataType:
    """Return the type; of types, only those with parts have such a public method."""
    return StructType([field]).toNullable()[0].dataType


def _refuse_other_type(given: StructField, result: StructField) -> None:
    # Spark's own ARRAY(id) has no nulls inside, which DDL cannot say.
    if _with_nulls(given) != _with_nulls(result):
        kinds = [each.dataType.simpleString().upper() for each in (given, result)]
        msg = (
            f"schema must have column {result.name!r} as {kinds[0]}, as the input has"
            f' it beside which it stands with on_error="column", got {kinds[1]}'
        )
        raise ValueError(msg)


def _arrow_type(declared: DataType, column: str) -> pa.DataType:
    if (plain := _PLAIN.get(type(declared))) is not None:
        return plain
    if isinstance(declared, spark_types.DecimalType):
        return pa.decimal128(declared.precision, declared.scale)
    # Arrow has no type for `ARRAY()`, an array of nulls without nulls.
    empty = spark_types.ArrayType(spark_types.NullType(), containsNull=False)
    if isinstance(declared, spark_types.ArrayType) and declared != empty:
        return pa.list_(_arrow_type(declared.elementType, column))
    if isinstance(declared, spark_types.MapType):
        key = _arrow_type(declared.keyType, column)
        return pa.map_(key, _arrow_type(declared.valueType, column))
    if isinstance(declared, StructType):
        fields = [(each.name, _arrow_type(each.dataType, column)) for each in declared]
        return pa.struct(fields)
    msg = (
        f"schema must have types that can be made of Python's values, got column"
        f" {column!r} of type {declared.simpleString().upper()}"
    )
    raise TypeError(msg)


def beside_input(
    columns: Sequence[OutputColumn],
    given: pa.RecordBatch,
    results: pa.RecordBatch,
    errors: Sequence[str | None],
) -> pa.RecordBatch:
    """Join the rows of input, results and errors; results are null beside an error."""
    texts = pa.array(errors, pa.string())
    is_good = texts.is_null()
    arrays = []
    for column in columns:
        if column.of_input is None:
            place = column.of_result
            arrays.append(texts if place is None else results.column(place))
            continue
        array = given.column(column.of_input)
        if column.of_result is not None:
            # The result's type has nulls inside; the input's may have none.
            made = results.column(column.of_result)
            array = array.cast(made.type)
            array = _either(is_good, made, array) if texts.null_count else array
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, [each.name for each in columns])


def _either(which: pa.Array, these: pa.Array, those: pa.Array) -> pa.Array:
    # All of Spark's worker processes import this module. Arrow's functions take them
    # as long as half of the package, and few need any.
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.if_else(which, these, those)
