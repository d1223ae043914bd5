"""Record batches in the form that COPY takes them in quickest."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import pyarrow as pa

from .csv_rows import csv_rows

if TYPE_CHECKING:
    from .connections import Connection
    from .staging import Staging

_NUMERIC = 1700


@dataclass(frozen=True, slots=True)
class CopiedBatches:
    """What goes to the server, and what it is told about it."""

    columns: tuple[str, ...]
    format: Literal["binary", "csv"]
    chunks: list[pa.Buffer | bytes]
    rows: int

    def __len__(self) -> int:
        return self.rows

    async def copy(self, connection: Connection, staging: Staging) -> None:
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
        groups = groupby(batches, lambda batch: batch.schema)
        return [self.copied([*same], mark) for _, same in groups]

    def copied(self, batches: list[pa.RecordBatch], mark: UUID | int) -> CopiedBatches:
        """Return record batches of one schema as one COPY reads them."""
        schema = batches[0].schema
        columns = self._mark, *schema.names
        count = sum(batch.num_rows for batch in batches)
        if not self._has_binary_form(schema):
            text = csv_rows(batches, str(mark))
            return CopiedBatches(columns, "csv", [text], count)
        from . import binary_rows as binary  # noqa: PLC0415  # numpy is there

        types = [self._types[name] for name in schema.names]
        field = mark.bytes if isinstance(mark, UUID) else struct.pack(">i", mark)
        rows = [
            row for batch in batches for row in binary.binary_rows(batch, types, field)
        ]
        chunks = [binary.HEADER, *rows, binary.TRAILER]
        return CopiedBatches(columns, "binary", chunks, count)

    def is_plain(self, schema: pa.Schema) -> bool:
        """Return whether the columns mean the same however they are copied."""
        plain = [
            field
            for field in schema
            if not (
                pa.types.is_decimal(field.type)
                and self._types.get(field.name) == _NUMERIC
            )
        ]
        return self._has_binary_form(pa.schema(plain))

    def _has_binary_form(self, schema: pa.Schema) -> bool:
        try:
            from .binary_rows import has_binary_form  # noqa: PLC0415  # may be missing
        except ImportError:  # there is pyarrow without numpy
            return False
        types = [self._types.get(name) for name in schema.names]
        return has_binary_form(schema, types)
