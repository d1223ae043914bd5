"""One attempt at an epoch: a folder that gets its final name at the end."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchqueue_async import BatchQueueError

from .epochs import Epoch

MANIFEST = "_manifest.json"
_FILE = "part-0.parquet"


class ParquetAttempt:
    """Writes to a folder that nobody reads, until `publish` renames it.

    Args:
        folder: Where it writes; must not exist.
        row_group: How many rows are written at a time.
        compression: As pyarrow's `ParquetWriter` takes it.
    """

    def __init__(self, folder: Path, row_group: int, compression: str) -> None:
        self._folder = folder
        self._row_group = row_group
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._failure: BaseException | None = None
        folder.mkdir()

    def break_off(self, error: BaseException) -> None:
        """Let `publish` refuse: something is missing, or is there by half."""
        self._failure = self._failure or error

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows, in row groups of the wanted size."""
        self._refuse_broken()
        for batch in batches:
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self._rows += batch.num_rows
            if self._waiting_rows >= self._row_group:
                self._write_out()

    def publish(self, epoch: Epoch, target: Path) -> None:
        """Finish the file and give the folder its name, unless another has it."""
        self._refuse_broken()
        self._write_out()
        if self._writer is not None:
            self._writer.close()
            _force_to_disk(self._folder / _FILE)
        self._write_manifest(epoch)
        _force_to_disk(self._folder)
        try:
            self._folder.rename(target)
        except OSError as error:
            # Another attempt has committed the epoch: this one's files go.
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
        _force_to_disk(target.parent)

    def discard(self) -> None:
        """Remove the folder; nothing to do if it has its final name."""
        if self._writer is not None:
            self._writer.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_out(self) -> None:
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._folder / _FILE, table.schema, compression=self._compression
            )
        self._writer.write_table(table, self._row_group)

    def _write_manifest(self, epoch: Epoch) -> None:
        manifest = {
            "query": epoch.query,
            "batch": epoch.batch,
            "rows": self._rows,
            "files": [_FILE] if self._writer is not None else [],
        }
        path = self._folder / MANIFEST
        path.write_text(json.dumps(manifest) + "\n", encoding="utf-8")
        _force_to_disk(path)

    def _refuse_broken(self) -> None:
        if self._failure is not None:
            msg = f"a write of this epoch has failed ({self._failure!r}): start again"
            raise BatchQueueError(msg) from self._failure


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
