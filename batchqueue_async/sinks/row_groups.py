"""Record batches on their way into one Parquet file, a row group at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


class RowGroups:
    """Gathers rows until a group is full; a file without rows is not begun.

    Args:
        target: The file's path, or the open file.
        size: How many rows are kept in memory, and written at a time.
        compression: As pyarrow's `ParquetWriter` takes it.
    """

    def __init__(self, target: Path | BinaryIO, size: int, compression: str) -> None:
        self.rows = 0
        self._target = target
        self._size = size
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._writer: pq.ParquetWriter | None = None

    @property
    def is_begun(self) -> bool:
        """Whether there is a file."""
        return self._writer is not None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows; they are written when a group is full."""
        for batch in batches:
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self.rows += batch.num_rows
            if self._waiting_rows >= self._size:
                self._write_out()

    def finish(self) -> None:
        """Write what is left, and the file's end."""
        self._write_out()
        self.abandon()

    def abandon(self) -> None:
        """Let the file go as it is."""
        if self._writer is not None:
            self._writer.close()

    def _write_out(self) -> None:
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._target, table.schema, compression=self._compression
            )
        self._writer.write_table(table, self._size)


def force_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
