"""The file that one attempt writes, before anybody publishes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


class StagedFile:
    """Writes record batches to a hidden file, which gets its name when it is sealed.

    Args:
        path: The name of the sealed file, in a folder that is there.
        row_group: How many rows are kept in memory, and written at a time.
        compression: As pyarrow's `ParquetWriter` takes it.
    """

    def __init__(self, path: Path, row_group: int, compression: str) -> None:
        self.path = path
        self.rows = 0
        self._unsealed = path.with_name(f".{path.name}")
        self._row_group = row_group
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Add rows; they are written when a row group is full.

        Raises:
            FileNotFoundError: Somebody has removed the folder: the run is over.
        """
        if self._file is None:
            self._file = self._unsealed.open("xb")
        self._waiting += batches
        added = sum(batch.num_rows for batch in batches)
        self._waiting_rows += added
        self.rows += added
        if self._waiting_rows >= self._row_group:
            self._write_out()

    def seal(self) -> None:
        """Finish the file, force it to the disk, and give it its name.

        Raises:
            FileNotFoundError: Somebody has removed it: the run is over.
        """
        self._write_out()
        self._close(is_kept=True)
        self._unsealed.replace(self.path)
        force_to_disk(self.path.parent)

    def remove(self) -> None:
        """Delete it, sealed or not."""
        self._close(is_kept=False)
        self._unsealed.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def _write_out(self) -> None:
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file, table.schema, compression=self._compression
            )
        self._writer.write_table(table, self._row_group)

    def _close(self, *, is_kept: bool) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._file is not None:
            if is_kept:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()


def force_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
