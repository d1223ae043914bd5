"""The file that one attempt writes, before anybody publishes it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Of 10,000 rows with values out of 50,000 nine in ten are different.
_SAMPLE = 10_000
_MOST_DISTINCT = 0.9


class StagedFile:
    """Writes record batches to a hidden file, which gets its name when it is sealed.

    For threads: a call that was cancelled leaves its own at work, and the next waits.
    """

    def __init__(self, path: Path, row_group: int, compression: str) -> None:
        self.path = path
        self.rows = 0
        self._unsealed = path.with_name(f".{path.name}")
        self._row_group = row_group
        self._compression = compression
        self._lock = threading.Lock()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._is_made = False
        self._writer: pq.ParquetWriter | None = None

    @property
    def has_columns(self) -> bool:
        """Whether there was a record batch: one without rows will do."""
        return bool(self._waiting) or self._writer is not None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows; they are written when a row group is full.

        Raises:
            FileNotFoundError: Somebody has removed the folder: the run is over.
        """
        with self._lock:
            if not self._is_made:
                self._unsealed.touch(exist_ok=False)
                self._is_made = True
            for batch in batches:
                self._waiting.append(batch)
                self._waiting_rows += batch.num_rows
                self.rows += batch.num_rows
                if self._waiting_rows >= self._row_group:
                    self._write_out()

    def seal(self) -> None:
        """Finish the file, force it to the disk, and give it its name.

        Without a record batch there is none, for want of columns.

        The name is on the disk once the folder's list of names is.

        Raises:
            FileNotFoundError: Somebody has removed it: the run is over.
        """
        with self._lock:
            if not self.has_columns:
                return
            self._write_out()
            if self._writer is not None:
                self._writer.close()
            force_to_disk(self._unsealed)
            self._unsealed.replace(self.path)

    def remove(self) -> None:
        with self._lock:
            if self._writer is not None:
                self._writer.close()
            self._unsealed.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def _write_out(self) -> None:
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._unsealed,
                table.schema,
                compression=self._compression,
                use_dictionary=_dictionary_columns(batches[0]),
            )
        self._writer.write_table(table, self._row_group)


def force_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dictionary_columns(sample: pa.RecordBatch) -> bool | list[str]:
    """Return those whose values repeat, as `ParquetWriter`'s `use_dictionary` takes it.

    By default pyarrow looks every value up until the dictionary of a row group is full,
    and then gives it up: for values that hardly repeat, such as ids, that is most of
    what writing costs. The first rows tell.
    """
    if any(pa.types.is_nested(field.type) for field in sample.schema):
        return True  # a column inside of another goes by a name of the writer's
    rows = sample.slice(0, _SAMPLE)
    most = rows.num_rows * _MOST_DISTINCT
    return [
        field.name
        for field, column in zip(rows.schema, rows, strict=True)
        if _distinct(column) <= most
    ]


def _distinct(column: pa.Array) -> int:
    try:
        found: int = pc.count_distinct(column).as_py()
    except pa.ArrowNotImplementedError:
        return 0  # as by default
    return found
