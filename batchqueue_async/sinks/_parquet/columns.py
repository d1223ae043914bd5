"""How a record batch's columns are written into a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..checks import listed

# Of 10,000 rows with values out of 50,000 nine in ten are different.
_SAMPLE = 10_000
_MOST_DISTINCT = 0.9


def with_nullable_parts(table: pa.Table) -> pa.Table:
    """Return the table, with fields of structs that may be null.

    Where a struct is null, so are its fields. pyarrow refuses to write that if one of
    them may not be null, as Spark says of a struct of an outer join.
    """
    fields = [
        field.with_type(_with_nullable_parts(field.type)) for field in table.schema
    ]
    schema = pa.schema(fields, metadata=table.schema.metadata)
    return table if schema.equals(table.schema) else table.cast(schema)


def _with_nullable_parts(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_part(field, nullable=True) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_part(kind.key_field), _part(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_part(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_part(kind.value_field))
    return kind


def _part(field: pa.Field, *, nullable: bool | None = None) -> pa.Field:
    may_be_null = field.nullable if nullable is None else nullable
    kind = _with_nullable_parts(field.type)
    return field.with_type(kind).with_nullable(may_be_null)


def same_schema(first: pa.Schema | None, other: pa.Schema) -> pa.Schema:
    """Return a file's schema; refuse another one as it comes, not as it is written."""
    if first is None or first.equals(other):
        return first or other
    msg = (
        "record batches of one epoch must have the columns of the first,"
        f" {_told(first)}; got {_told(other)}"
    )
    raise ValueError(msg)


def _told(schema: pa.Schema) -> str:
    return listed([f"{field.name}: {field.type}{_not_null(field)}" for field in schema])


def _not_null(field: pa.Field) -> str:
    return "" if field.nullable else " not null"


def dictionary_columns(sample: pa.RecordBatch) -> bool | list[str]:
    """Return those whose values repeat, as `ParquetWriter`'s `use_dictionary` takes it.

    By default pyarrow looks every value up until the dictionary of a row group is full,
    and then gives it up: for values that hardly repeat, such as ids, that is most of
    what writing costs. The first rows tell.
    """
    if any(pa.types.is_nested(field.type) for field in sample.schema):
        return True  # only the writer knows its names for columns inside of others
    rows = sample.slice(0, _SAMPLE)
    most = rows.num_rows * _MOST_DISTINCT
    return [
        field.name
        for field, column in zip(rows.schema, rows, strict=True)
        if _distinct(column) <= most
    ]


def _distinct(column: pa.Array) -> int:
    try:
        found: int = pc.count_distinct(column).as_py()
    except pa.ArrowNotImplementedError:
        return 0  # so that it gets a dictionary, as by default
    return found


def require_names_that_differ(names: Sequence[str], *, exact: bool = True) -> None:
    """Refuse what Spark would not read again, in any file of the directory."""
    seen: dict[str, str] = {}
    for name in names:
        key = name if exact else name.casefold()
        if key in seen:
            other = seen[key]
            msg = f"column {name!r} must have another name than {other!r}"
            if other != name:
                msg += (
                    ", from which it differs in case only: Spark reads such files with"
                    " spark.sql.caseSensitive alone"
                )
            raise ValueError(msg)
        seen[key] = name
