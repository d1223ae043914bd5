"""Which frames there are rows of: refused before anything runs, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark_types

from batchqueue_async._wording import shown

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def require_frame(df: Any) -> None:  # noqa: ANN401 - it is looked at
    """Refuse anything but a frame whose rows Spark can send to Python.

    Raises:
        TypeError: It is no DataFrame of Spark's, or has a column of a type for which
            Arrow in Python has none: Spark's own error comes from a worker, and says
            "KeyError: 21".
        ValueError: It has no columns: Spark's record batches have no rows then.
    """
    if not hasattr(df, "mapInArrow"):
        kind = type(df)
        if kind.__name__ == "DataFrame":
            msg = f"df must be a DataFrame of Spark's, got one of {kind.__module__}"
        else:
            msg = f"df must be a DataFrame, got {shown(df)}"
        raise TypeError(msg)
    require_columns(df.schema.names)
    for field in df.schema:
        if any(isinstance(it, _UNKNOWN) for it in parts_of(field.dataType)):
            msg = (
                "df must have columns that Arrow in Python knows, got column"
                f" {field.name!r} of type {field.dataType.simpleString().upper()}:"
                " cast INTERVAL YEAR TO MONTH in Spark, such as to INTERVAL MONTH and"
                " then to INT"
            )
            raise TypeError(msg)


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


_UNKNOWN = (spark_types.YearMonthIntervalType,)


def parts_of(kind: DataType) -> Iterator[DataType]:
    """Yield the type and all that it is made of."""
    yield kind
    if isinstance(kind, spark_types.ArrayType):
        yield from parts_of(kind.elementType)
    elif isinstance(kind, spark_types.MapType):
        yield from parts_of(kind.keyType)
        yield from parts_of(kind.valueType)
    elif isinstance(kind, spark_types.StructType):
        for field in kind:
            yield from parts_of(field.dataType)
