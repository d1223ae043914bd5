"""Record batches in the form that COPY takes them in quickest: binary, or else CSV."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from batchqueue_async._validation import refuse

from .fitting import fitted

if TYPE_CHECKING:
    from .connections import Connection
    from .staging_table import StagingTable

# The numbers of the types on every server.
_NUMERIC, _BYTEA = 1700, 17
# TEXT, CHAR(n) and VARCHAR; "char" and NAME; XML, TSVECTOR and TSQUERY.
_TEXTS = frozenset((25, 1042, 1043, 18, 19, 142, 3614, 3615))
_TIMESTAMPS = frozenset((1114, 1184))
_OPTIONS = pyarrow.csv.WriteOptions(include_header=False)
_REFUSED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_nested, "of a type without parts (to_json makes texts of them)"),
    (pa.types.is_interval, "of no INTERVAL (a cast to STRING makes a text of it)"),
    (pa.types.is_duration, "of no INTERVAL (a cast to STRING makes a text of it)"),
)

_DAY = 24 * 3600 * 1_000_000
# Days since 1970 of the first day of year 1, and of 400 years, which are all alike.
_FIRST = (date(1, 1, 1) - date(1970, 1, 1)).days
_CYCLE = 146_097


@dataclass(frozen=True, slots=True)
class CopiedBatches:
    columns: tuple[str, ...]
    format: Literal["binary", "csv"]
    chunks: list[pa.Buffer | bytes]
    rows: int

    def __len__(self) -> int:
        return self.rows

    async def copy(self, connection: Connection, staging: StagingTable) -> None:
        await connection.copy_to_table(
            staging.name,
            schema_name=staging.target.schema,
            columns=self.columns,
            source=self._source(),
            format=self.format,
        )

    async def _source(self) -> AsyncIterator[pa.Buffer | bytes]:
        for chunk in self.chunks:
            yield chunk


class BatchCopier:
    """Makes COPYs of record batches, for a table whose columns are known."""

    def __init__(self, mark: str, types: Mapping[str, int]) -> None:
        self._mark = mark
        self._types = types

    def copies(
        self, batches: Iterable[pa.RecordBatch], mark: UUID | int
    ) -> list[CopiedBatches]:
        """Return record batches as COPY reads them, in their order; takes a while."""
        fitting = map(self.fitted, batches)
        groups = groupby(fitting, lambda batch: batch.schema)
        return [self.copied([*same], mark) for _, same in groups]

    def copied(self, batches: list[pa.RecordBatch], mark: UUID | int) -> CopiedBatches:
        schema = batches[0].schema
        columns = self._mark, *schema.names
        count = sum(batch.num_rows for batch in batches)
        if not self._has_binary_form(schema):
            _require_alike(schema, self._types)
            text = _csv_rows(batches, str(mark))
            return CopiedBatches(columns, "csv", [text], count)
        from . import binary_rows as binary  # noqa: PLC0415  # numpy is there

        types = [self._types[name] for name in schema.names]
        field = mark.bytes if isinstance(mark, UUID) else struct.pack(">i", mark)
        rows = [
            row for batch in batches for row in binary.binary_rows(batch, types, field)
        ]
        chunks = [binary.HEADER, *rows, binary.TRAILER]
        return CopiedBatches(columns, "binary", chunks, count)

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a record batch whose days, moments and floats are of their types."""
        return fitted(batch, self._types)

    def is_plain(self, schema: pa.Schema) -> bool:
        """Return whether the columns mean the same however they are copied."""
        # For a NUMERIC, decimals and floats are the same text in CSV and in rows.
        plain = [
            field
            for field in schema
            if self._types.get(field.name) != _NUMERIC
            or not (pa.types.is_decimal(field.type) or pa.types.is_floating(field.type))
        ]
        return self._has_binary_form(pa.schema(plain))

    def _has_binary_form(self, schema: pa.Schema) -> bool:
        try:
            from .binary_rows import has_binary_form  # noqa: PLC0415  # may be missing
        except ImportError:  # pyarrow may be installed without numpy
            return False
        types = [self._types.get(name) for name in schema.names]
        return has_binary_form(schema, types)


def _csv_rows(batches: list[pa.RecordBatch], key: str) -> pa.Buffer:
    """Return the rows as CSV, `key` as the first value of each.

    A null is an empty value, an empty text is one in quotes, as COPY expects them.
    """
    output = pa.BufferOutputStream()
    for batch in batches:
        columns = [_plain(batch.schema.field(n), c) for n, c in enumerate(batch)]
        keys = pa.repeat(pa.scalar(key), batch.num_rows)
        names = [str(number) for number in range(len(columns) + 1)]
        table = pa.RecordBatch.from_arrays([keys, *columns], names=names)
        pyarrow.csv.write_csv(table, output, _OPTIONS)
    return output.getvalue()


def require_plain(schema: pa.Schema) -> None:
    """Refuse columns of types that are no value of PostgreSQL's."""
    for field in schema:
        for is_it, rule in _REFUSED:
            if is_it(field.type):
                refuse(f"column {field.name!r}", rule, str(field.type), TypeError)


def _require_alike(schema: pa.Schema, types: Mapping[str, int]) -> None:
    """Refuse texts for bytes, bytes for texts, and whole numbers for moments.

    The server would take a text for the spelling of other bytes, in which a backslash
    is none, our spelling of bytes for a text, and 20260102 for a day. In rows it is
    microseconds.
    """
    for field in schema:
        is_for, kind = types.get(field.name), field.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if is_text and is_for == _BYTEA:
            rule = "of BINARY for a BYTEA (a cast, or unhex, makes it)"
        elif is_bytes and is_for in _TEXTS:
            rule = "of STRING for texts (a cast, hex or base64 make it)"
        elif pa.types.is_integer(kind) and is_for in _TIMESTAMPS:
            rule = "of TIMESTAMP for a timestamp (timestamp_micros, or others, make it)"
        else:
            continue
        refuse(f"column {field.name!r}", rule, str(kind), TypeError)


def _plain(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return a column as PostgreSQL reads it: texts, if years before 1 are in it.

    Arrow's CSV spells these in a way of its own.
    """
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Offsets of early years may have seconds, which Arrow's texts would leave out.
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = (None if v is None else "\\x" + v.hex() for v in column.to_pylist())
        return pa.array(values, pa.string())
    if pa.types.is_date(kind):
        return _dates_spelled(column, column.cast(pa.date32()).cast(pa.int32()), 1)
    if pa.types.is_timestamp(kind):
        whole = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        return _dates_spelled(column, whole.cast(pa.int64()), _DAY)
    return column


def _dates_spelled(column: pa.Array, values: pa.Array, day: int) -> pa.Array:
    first = pc.min(values).as_py()
    if first is None or first >= _FIRST * day:
        return column
    zone = "+00" if day == _DAY and column.type.tz is not None else ""
    texts = [v if v is None else _text(v, day, zone) for v in values.to_pylist()]
    return pa.array(texts, pa.string())


def _text(value: int, day: int, zone: str) -> str:
    days, rest = divmod(value, day)
    cycles = max(0, -((days - _FIRST) // _CYCLE))
    alike = date(1970, 1, 1) + timedelta(days + cycles * _CYCLE)
    year = alike.year - 400 * cycles
    era = "" if year > 0 else " BC"
    text = f"{year if year > 0 else 1 - year:04d}-{alike:%m-%d}"
    if day == _DAY:
        seconds, micros = divmod(rest, 1_000_000)
        hours, seconds = divmod(seconds, 3600)
        text += f" {hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}.{micros:06d}"
    return f"{text}{zone}{era}"
