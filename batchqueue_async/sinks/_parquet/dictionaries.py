"""Which columns of a file get a dictionary."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

# Of 10,000 rows with values out of 50,000 nine in ten are different.
_SAMPLE = 10_000
_MOST_DISTINCT = 0.9


def dictionary_columns(sample: pa.RecordBatch) -> bool | list[str]:
    """Return those whose values repeat, as `ParquetWriter`'s `use_dictionary` takes it.

    By default pyarrow looks every value up until the dictionary of a row group is full,
    and then gives it up: for values that hardly repeat, such as ids, that is most of
    what writing costs. The first rows tell.
    """
    if any(pa.types.is_nested(field.type) for field in sample.schema):
        return True  # a column inside of another goes by a name of the writer's
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
        return 0  # as by default
    return found
