"""Spark's `mapInArrow`, for frames with any names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Function: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(
    df: DataFrame, function: Function, schema: StructType | str
) -> DataFrame:
    """Return what `df.mapInArrow` does.

    Spark 4.3 looks the frame's columns up by their names, where a dot is the way to a
    part, and two names that differ in case only are one. So such columns have other
    names on their way.
    """
    names = df.columns
    if _can_be_looked_up(names):
        return df.mapInArrow(function, schema)

    # Nested, so that it travels by value: executors need not have this package.
    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    plain = df.toDF(*(f"c{number}" for number in range(len(names))))
    return plain.mapInArrow(renamed, schema)


def _can_be_looked_up(names: list[str]) -> bool:
    if any("." in name or "`" in name for name in names):
        return False
    return len({name.casefold() for name in names}) == len(names)
