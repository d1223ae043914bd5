"""What a record batch becomes in a queue: for `to_items`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from batchqueue_async._wording import shown

T = TypeVar("T")


def to_tuples(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return a tuple for each row, made column by column.

    Timestamps become whole microseconds since 1970 (in UTC if they have a time zone):
    making a `datetime` of each costs more than all the rest of a row.
    """
    return zip(*_columns(batch), strict=True)


def to_dicts(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return a dict for each row, with values as in `to_tuples`."""
    columns = zip(batch.schema.names, _columns(batch), strict=True)
    name, first = next(columns, ("", []))
    # Column by column: half of what a `dict(zip(...))` for each row takes, and less.
    rows = [{name: value} for value in first]
    for name, column in columns:
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return iter(rows)


def to_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Return the record batch itself as one item, for handlers that take columns."""
    yield batch


def to_objects(
    make: Callable[..., T],
) -> Callable[[pa.RecordBatch], Iterable[T]]:
    """Return what makes typed items: `make(*row)` for each row, as in `to_tuples`.

    Args:
        make: A class, such as a dataclass or a NamedTuple, or any function. Its
            arguments are the columns, in their order.

    Raises:
        TypeError: If it cannot be called.
    """
    require_callable("make", make)

    def objects(batch: pa.RecordBatch) -> Iterator[T]:
        return map(make, *_columns(batch))

    return objects


def require_callable(field: str, value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        msg = f"{field} must be callable, got {shown(value)}"
        raise TypeError(msg)


def _columns(batch: pa.RecordBatch) -> list[list[Any]]:
    return [_plain(column).to_pylist() for column in batch.columns]


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        microseconds = pa.timestamp("us", column.type.tz)
        return column.cast(microseconds).cast(pa.int64())
    return column
