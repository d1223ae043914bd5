"""From a handler's items to the rows of a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from batchqueue_async._validation import refuse
from batchqueue_async._wording import kind_of, shown

from .checks import refuse_item

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    # Nothing but `to_row` says what the items are: the default spares an annotation.
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

Row: TypeAlias = Sequence[Any]
"""One row's values, in the order of the sink's columns."""

ToRow: TypeAlias = Callable[[T], Row | Mapping[str, Any]]

# Of which a row of as many values could be made, each of them a wrong one.
_NO_ROWS = (str, bytes, bytearray, memoryview, set, frozenset)


@dataclass(frozen=True, slots=True)
class RowReader(Generic[T]):
    """Makes rows of items, for a table with these columns.

    Items, or what `to_row` makes of them, are tuples or lists, or mappings by column.
    Without `to_row` they may be whole record batches of pyarrow, which `read_batch`
    gets with these columns in their order; what it makes may be another sequence.
    """

    columns: tuple[str, ...]
    to_row: ToRow[T] | None
    read_batch: Callable[[pa.RecordBatch], Iterable[Row]]

    def rows(self, items: Iterable[T]) -> list[Row]:
        """Return the rows of the items, in their order."""
        rows = list(self._rows(items))
        wanted = len(self.columns)
        for row in rows:
            if len(row) != wanted:
                rule = f"a row of {wanted} values {shown(self.columns)}"
                refuse_item(rule, row, but=f" of {len(row)}")
        return rows

    def _rows(self, items: Iterable[Any]) -> Iterator[Row]:
        if self.to_row is not None:
            # Not by `map`, for which a StopIteration of `to_row` is the rows' end.
            for item in items:
                yield self._made_row(self.to_row(item))
            return
        for item in items:
            if (row := self._row_of(item)) is not None:
                yield row
            elif is_record_batch(item):
                yield from self.read_batch(selected(item, self.columns))
            else:
                rule = "a tuple, a list, a mapping or a record batch without to_row"
                msg = f"an item must be {rule}, got {kind_of(item)}"
                raise TypeError(msg)

    def _made_row(self, made: Any) -> Row:  # noqa: ANN401 - of a user's function
        if (row := self._row_of(made)) is not None:
            return row
        if isinstance(made, _NO_ROWS) or not (
            hasattr(made, "__len__") and hasattr(made, "__iter__")
        ):
            rule = "to_row must return a tuple, a list or a mapping"
            msg = f"{rule}, got {kind_of(made)}"
            raise TypeError(msg)
        return made  # type: ignore[no-any-return]  # a sequence of some kind

    def _row_of(self, item: Any) -> Row | None:  # noqa: ANN401 - a user's item is anything
        if isinstance(item, tuple | list):
            names = getattr(item, "_fields", None)
            return item if names is None else self._row_of_named(item, names)
        return self._row_of_mapping(item) if isinstance(item, Mapping) else None

    def _row_of_named(self, item: Row, names: tuple[str, ...]) -> Row:
        """Return a NamedTuple's values in the columns' order.

        Of other names than the columns', it is a row like any other.
        """
        columns = self.columns
        if names == columns:
            return item
        if {*names} == {*columns}:
            return [getattr(item, column) for column in columns]
        if any(n in columns and columns.index(n) != at for at, n in enumerate(names)):
            rule = f"a row of the columns {shown(columns)}, in their order"
            refuse_item(rule, item, but=f" of {shown(names)}")
        return item

    def _row_of_mapping(self, item: Mapping[str, Any]) -> Row:
        if item.keys() != set(self.columns):
            missing = [name for name in self.columns if name not in item]
            but = f" of {len(item)} without {shown(missing)}"
            refuse_item(f"a mapping of {shown(self.columns)}", item, but=but)
        return [item[column] for column in self.columns]


def selected(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return a record batch with these columns in their order; refuse another."""
    if set(batch.schema.names) != set(columns):
        rule = f"a record batch with the columns {shown(tuple(columns))}"
        refuse("an item", rule, tuple(batch.schema.names))
    return batch.select([*columns])


def is_record_batch(item: object) -> bool:
    """Tell a record batch without importing pyarrow, which need not be there."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(item, pyarrow.RecordBatch)


def require_batches(items: object) -> None:
    """Refuse what is no list of record batches; one without any is fine."""
    rule = "items must be a list of record batches of pyarrow"
    if not isinstance(items, list | tuple):
        msg = f"{rule}, got {kind_of(items)}"
        raise TypeError(msg)
    for item in items:
        if not is_record_batch(item):
            msg = f"{rule}, got {kind_of(item)} in it"
            raise TypeError(msg)
        require_columns_of(item)


def require_columns_of(batch: pa.RecordBatch) -> None:
    """Refuse a record batch without columns, of which no store can make rows."""
    if not batch.num_columns:
        msg = "an item must be a record batch with one column or more, got one with 0"
        raise ValueError(msg)


def python_values(column: pa.Array, name: str) -> list[Any]:
    """Return a column's values as objects of Python's."""
    # What Arrow raises may quote the value.
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        rule = "text in UTF-8, got other bytes (a cast to BINARY keeps them)"
    except LookupError:
        rule = f"of a time zone that Python knows, got {column.type}"
    except (OverflowError, ValueError):
        rule = (
            "of dates and times of the years 1 to 9999, as Python's are, got others of"
            f" type {column.type}"
        )
    else:
        return values
    msg = f"column {name} must be {rule}"
    raise ValueError(msg)


def python_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Return rows with `datetime` objects for timestamps."""
    columns = zip(batch.columns, batch.schema.names, strict=True)
    return zip(*(python_values(*each) for each in columns), strict=True)


def plain_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Return rows with whole microseconds since 1970 (UTC) for timestamps."""
    import pyarrow as pa  # noqa: PLC0415  # a batch of it is here, so it is, too

    from .plain_columns import plain_column  # noqa: PLC0415  # as above

    def plain(column: pa.Array, name: str) -> list[Any]:
        column = plain_column(column, name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        return python_values(column, name)

    return zip(*map(plain, batch.columns, batch.schema.names), strict=True)
