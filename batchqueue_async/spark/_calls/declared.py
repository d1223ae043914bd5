"""What a `map_async` returns: its columns for Spark, and how they are made."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import DataType, StringType, StructField, StructType

from batchqueue_async._validation import refuse
from batchqueue_async._wording import shown

from .arrow_types import arrow_type
from .kept_input import OutputColumn
from .options import OnError
from .row_columns import Column


@dataclass(frozen=True)
class Declared:
    """What is known of the results before there are any.

    Attributes:
        schema: Of the frame that is returned.
        columns: Of the results.
        output: How the frame's columns come of the input's and the results'; None where
            the frame has the results' columns and no others.
    """

    schema: StructType
    columns: tuple[Column, ...]
    output: tuple[OutputColumn, ...] | None


def declare(
    schema: StructType | str,
    input_schema: StructType | None,
    on_error: OnError,
    error_column: str,
) -> Declared:
    """Return what the frame will be.

    Args:
        schema: Of the results.
        input_schema: Of the frame that the items come from; needed for "column" only.
        on_error: As for `map_async`.
        error_column: The name of the column for the error's text.
    """
    fields = _parsed(schema)
    _refuse_twice("schema", fields.names)
    columns = tuple(
        Column(
            each.name,
            arrow_type(each.dataType, each.name),
            each.dataType.simpleString().upper(),
            each.nullable,
        )
        for each in fields
    )
    if on_error == "raise":
        return Declared(fields, columns, None)
    nullable = StructType([StructField(each.name, each.dataType) for each in fields])
    if on_error == "null" or input_schema is None:
        return Declared(nullable, columns, None)
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
) -> Declared:
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
            field = StructField(field.name, field.dataType)  # noqa: PLW2901
        fields.append(field)
        output.append(OutputColumn(field.name, at, place))
    for place in places.values():
        fields.append(results[place])
        output.append(OutputColumn(results[place].name, None, place))
    if error_column.casefold() in {each.name.casefold() for each in fields}:
        refuse("error_column", "a name that no other column has", error_column)
    fields.append(StructField(error_column, StringType()))
    output.append(OutputColumn(error_column, None, None))
    return Declared(StructType(fields), columns, tuple(output))


def _refuse_twice(field: str, names: list[str]) -> None:
    # As Spark sees them, unless it was told to look at case.
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            refuse(field, "of columns whose names differ", name)


def _refuse_other_type(given: StructField, result: StructField) -> None:
    if given.dataType != result.dataType:
        kinds = [each.dataType.simpleString().upper() for each in (given, result)]
        msg = (
            f"schema must have column {result.name!r} as {kinds[0]}, as the input has"
            f' it beside which it stands with on_error="column", got {kinds[1]}'
        )
        raise ValueError(msg)
