"""The file that one attempt writes, before anybody publishes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .row_groups import RowGroups, force_to_disk

if TYPE_CHECKING:
    import pyarrow as pa


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
        self._file: BinaryIO | None = None
        self._groups: RowGroups | None = None

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Add rows; they are written when a row group is full.

        Raises:
            FileNotFoundError: Somebody has removed the folder: the run is over.
        """
        if self._groups is None:
            self._file = self._unsealed.open("xb")
            self._groups = RowGroups(self._file, self._row_group, self._compression)
        self._groups.write(batches)
        self.rows = self._groups.rows

    def seal(self) -> None:
        """Finish the file, force it to the disk, and give it its name.

        Raises:
            FileNotFoundError: Somebody has removed it: the run is over.
        """
        if self._groups is not None:
            self._groups.finish()
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        self._unsealed.replace(self.path)
        force_to_disk(self.path.parent)

    def remove(self) -> None:
        """Delete it, sealed or not."""
        if self._groups is not None:
            self._groups.abandon()
        if self._file is not None:
            self._file.close()
        self._unsealed.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
