"""What a record batch becomes in a queue: for `to_items`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._functions import name_of
from batchqueue_async._validation import require_callable

from ._column_values import Parameters, Read, parameters_of, reader_for, values_of
from .frames import require_names_that_differ

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


def to_tuples(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return a tuple for each row, made column by column.

    Timestamps become whole microseconds since 1970 (in UTC if they have a time zone):
    making a `datetime` of each costs more than all the rest of a row. Maps and structs
    become dicts, arrays lists; the Spark guide has a table of all types.

    Raises:
        ValueError: Python has no such value, such as a date before the year 1; the
            message has the column's name.
    """
    return zip(*_columns(batch), strict=True)


def to_dicts(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return a dict for each row, with values as in `to_tuples`.

    Raises:
        ValueError: As `to_tuples`; or two columns have one name.
    """
    require_names_that_differ(batch.schema.names, "dicts")
    columns = zip(batch.schema.names, _columns(batch), strict=True)
    name, first = next(columns, ("", []))
    # Column by column: less than half of what a `dict(zip(...))` per row takes.
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

    Where `make` has annotations, values are as those say: a decimal is a `float` where
    that is wanted, a timestamp a `datetime` (in UTC if it has a time zone), an array a
    `tuple` or a `set`, a struct a dataclass or NamedTuple with its fields; and a column
    that doesn't fit is refused with the first record batch. What is not annotated, or
    with a class of your own, `Any` or a TypeVar, comes as in `to_tuples`.

    Args:
        make: A class, such as a dataclass or a NamedTuple, or any function. Its
            arguments are the columns, in their order.

    Raises:
        TypeError: If it cannot be called. With the first record batch: it doesn't take
            as many values as there are columns, or a column doesn't fit its annotation;
            the message has the column's name.
    """
    require_callable("make", make)
    return _Objects(make, parameters_of(make))


class _Objects(Generic[T]):
    """Makes the items; how to read the columns is found out with the first batch.

    Annotations are evaluated where this is made, on the driver: on an executor, a class
    that is pickled by value lacks the names that they are written with.
    """

    def __init__(self, make: Callable[..., T], parameters: Parameters | None) -> None:
        self._make = make
        self._parameters = parameters
        self._schema: pa.Schema | None = None
        self._readers: Sequence[Read] = ()

    def __call__(self, batch: pa.RecordBatch) -> Iterator[T]:
        if batch.schema != self._schema:
            self._readers = self._readers_for(batch.schema)
            self._schema = batch.schema
        columns = zip(self._readers, batch.schema, batch.columns, strict=True)
        made = [
            *map(self._make, *(read(field, column) for read, field, column in columns))
        ]
        if len(made) < batch.num_rows:  # for `map` that was the end of the rows
            name = name_of(self._make)
            msg = f"{name} raised StopIteration for row {len(made)} of a batch"
            raise RuntimeError(msg)
        return iter(made)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make, self._parameters)

    def _readers_for(self, schema: pa.Schema) -> list[Read]:
        if self._parameters is None:
            return [values_of] * len(schema)
        name = name_of(self._make)
        taken = self._parameters.for_values(len(schema))
        if taken is None:
            msg = (
                f"{name} takes {self._parameters}, got the columns"
                f" {', '.join(schema.names)}"
            )
            raise TypeError(msg)
        return [
            reader_for(field, parameter, name)
            for field, parameter in zip(schema, taken, strict=True)
        ]


def _columns(batch: pa.RecordBatch) -> list[list[Any]]:
    return [*map(values_of, batch.schema, batch.columns)]
