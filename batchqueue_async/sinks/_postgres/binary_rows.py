"""From record batches to the binary form that PostgreSQL's COPY reads.

To the server it is a third of the work of reading texts: it parses no numbers and no
timestamps. The form is that of the manual's page on COPY, "Binary Format": a header;
for each row the number of its fields, and for each field its length and its bytes, in
network byte order; a trailer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Values: TypeAlias = npt.NDArray[Any]
Encode: TypeAlias = Callable[[pa.Array], Values]

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = struct.pack(">h", -1)
_NULL = -1
# A row's pieces are joined in buffers with offsets of 32 bits.
_MOST_BYTES = 2**24
# From 1970 to 2000, where the server's calendar begins.
_DAYS = 10_957
_MICROSECONDS = _DAYS * 24 * 3600 * 1_000_000

# Types of columns, by the numbers that they have on every server.
_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT, _JSON = 16, 17, 20, 21, 23, 25, 114
_FLOAT4, _FLOAT8, _BPCHAR, _VARCHAR = 700, 701, 1042, 1043
_DATE, _TIMESTAMP, _TIMESTAMPTZ = 1082, 1114, 1184


def _as(dtype: str) -> Encode:
    return lambda column: _numbers(column).astype(dtype)


def _numbers(column: pa.Array) -> Values:
    values: Values = column.to_numpy(zero_copy_only=False)
    return values


def _days(column: pa.Array) -> Values:
    return _since_2000(column.cast(pa.int32()), _DAYS).astype(">i4")


def _microseconds(column: pa.Array) -> Values:
    return _since_2000(column.cast(pa.int64()), _MICROSECONDS).astype(">i8")


def _since_2000(column: pa.Array, since_1970: int) -> Values:
    values = _numbers(column)
    # A value that would overflow, or become the number that means -infinity, becomes
    # the earliest other one, which the server refuses as too long ago.
    return np.maximum(values, np.iinfo(values.dtype).min + since_1970 + 1) - since_1970


# How the values of a type become those of a column's type. What is missing here (a
# number for a narrower column, a decimal) can be told to the server as a text only.
_OF_FIXED_WIDTH: Final[Mapping[tuple[pa.DataType, int | None], Encode]] = {
    (pa.bool_(), _BOOL): _as("u1"),
    (pa.float32(), _FLOAT4): _as(">f4"),
    (pa.float64(), _FLOAT8): _as(">f8"),
    (pa.date32(), _DATE): _days,
    **{
        (kind, column): _as(f">i{width}")
        for column, width in ((_INT2, 2), (_INT4, 4), (_INT8, 8))
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
        if kind.bit_width <= width * 8
    },
}
_TEXTS: Final = frozenset({_TEXT, _VARCHAR, _BPCHAR, _JSON})


def has_binary_form(schema: pa.Schema, columns: Sequence[int | None]) -> bool:
    """Return whether all columns of record batches fit the table's, as they are.

    Columns are numbers of types, in the same order; None for one that the table hasn't.
    """
    return all(
        _is_variable(field.type, column) or _encode_of(field.type, column) is not None
        for field, column in zip(schema, columns, strict=True)
    )


def binary_rows(
    batch: pa.RecordBatch, columns: Sequence[int], mark: bytes
) -> Iterator[pa.Buffer]:
    """Yield the rows, the mark first in each, without header and trailer."""
    if not batch.num_rows:
        return
    rows = max(1, int(_MOST_BYTES * batch.num_rows / max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield _encoded(batch.slice(start, rows), columns, mark)


def _encoded(batch: pa.RecordBatch, columns: Sequence[int], mark: bytes) -> pa.Buffer:
    head = struct.pack(">hi", 1 + len(columns), len(mark)) + mark
    row = _Row(batch.num_rows)
    row.add(np.frombuffer(head, f"V{len(head)}"))
    for column, number in zip(batch.columns, columns, strict=True):
        if _is_variable(column.type, number):
            _add_texts(row, column)
        elif encode := _encode_of(column.type, number):
            _add_fixed(row, column, encode)
    return row.joined()


class _Row:
    """The pieces of each row, in their order: columns of bytes that will be joined.

    What is of one width in all rows is put together in one piece.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._fixed: list[Values] = []
        self._pieces: list[pa.Array] = []

    def add(self, values: Values) -> None:
        self._fixed.append(values)

    def add_variable(self, values: pa.Array) -> None:
        """Add bytes, as many as each row has."""
        self._close()
        self._pieces.append(values)

    def joined(self) -> pa.Buffer:
        self._close()
        if len(self._pieces) == 1:
            return self._pieces[0].buffers()[2]
        joined = pc.binary_join_element_wise(*self._pieces, b"")
        return joined.buffers()[2]

    def _close(self) -> None:
        if not self._fixed:
            return
        fields = [(f"f{n}", values.dtype) for n, values in enumerate(self._fixed)]
        made = np.empty(self._rows, np.dtype(fields))
        for (name, _), values in zip(fields, self._fixed, strict=True):
            made[name] = values
        width = made.dtype.itemsize
        offsets = np.arange(self._rows + 1, dtype=np.int32) * np.int32(width)
        self._pieces.append(_binary(offsets, made))
        self._fixed = []


def _add_texts(row: _Row, column: pa.Array) -> None:
    values = column.cast(pa.binary())
    lengths = pc.binary_length(values)
    if column.null_count:
        lengths, values = lengths.fill_null(_NULL), values.fill_null(b"")
    row.add(lengths.to_numpy().astype(">i4"))
    row.add_variable(values)


def _add_fixed(row: _Row, column: pa.Array, encode: Encode) -> None:
    if not column.null_count:
        values = encode(column)
        row.add(np.array([values.dtype.itemsize], ">i4"))
        row.add(values)
        return
    is_there = _numbers(column.is_valid())
    values = encode(column.drop_null())
    width = values.dtype.itemsize
    row.add(np.where(is_there, width, _NULL).astype(">i4"))
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(is_there * width, out=offsets[1:])
    row.add_variable(_binary(offsets, values))


def _binary(offsets: Values, values: Values) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _is_variable(kind: pa.DataType, column: int | None) -> bool:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column in _TEXTS
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return is_binary and column == _BYTEA


def _encode_of(kind: pa.DataType, column: int | None) -> Encode | None:
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        wanted = _TIMESTAMP if kind.tz is None else _TIMESTAMPTZ
        return _microseconds if column == wanted else None
    return _OF_FIXED_WIDTH.get((kind, column))
