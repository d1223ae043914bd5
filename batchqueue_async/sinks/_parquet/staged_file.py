"""A file of an epoch that nobody sees yet, and what forces files to the disk."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchqueue_async import BatchQueueError
from batchqueue_async._wording import reason

from .columns import dictionary_columns, same_schema, with_nullable_parts

_IS_WINDOWS = os.name == "nt"


class StagedFile:
    """Writes record batches to a hidden file, which gets its name when it is sealed.

    For threads: a call that was cancelled leaves its own at work, and the next waits.
    After a failure nothing is written or sealed any more: rows may be missing.
    """

    def __init__(self, path: Path, row_group: int, compression: str) -> None:
        self.path = path
        self.rows = 0
        self._unsealed = path.with_name(f".{path.name}")
        self._row_group = row_group
        self._compression = compression
        self._lock = threading.Lock()
        self.columns: list[str] = []
        self._schema: pa.Schema | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._is_made = False
        self._is_sealed = False
        self.failure: BaseException | None = None
        self._writer: pq.ParquetWriter | None = None

    @property
    def has_columns(self) -> bool:
        """Whether there was a record batch: one without rows will do."""
        return bool(self._waiting) or self._writer is not None

    def refuse_broken(self) -> None:
        """Raise if something is missing in the file, or there by half."""
        if self.failure is not None:
            why = reason(self.failure)
            msg = f"a write of this epoch has failed ({why}): start again"
            raise BatchQueueError(msg) from self.failure

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows; they are written when a row group is full.

        As in `seal`, a FileNotFoundError says that the run is over: it was removed.
        """
        with self._whole():
            if self._is_sealed:  # what came now would be in no file
                msg = "rows came after their file was finished: start again"
                raise BatchQueueError(msg)
            if not self._is_made:
                if self.path.exists():
                    told = "an attempt of this name was sealed before"
                    raise FileExistsError(errno.EEXIST, told, str(self.path))
                self._unsealed.touch(exist_ok=False)
                self._is_made = True
            for batch in batches:
                self._schema = same_schema(self._schema, batch.schema)
                self.columns = batch.schema.names
                self._waiting.append(batch)
                self._waiting_rows += batch.num_rows
                self.rows += batch.num_rows
                if self._waiting_rows >= self._row_group:
                    self._write_out()

    def seal(self) -> None:
        """Finish the file, force it to the disk, and give it its name, once.

        Without a record batch there is none, for want of columns. The name is on the
        disk once the folder's list of names is.
        """
        with self._whole():
            if self._is_sealed or not self.has_columns:
                return
            self._write_out()
            if self._writer is not None:
                self._writer.close()
            force_to_disk(self._unsealed)
            self._unsealed.replace(self.path)
            self._is_sealed = True

    def remove(self) -> None:
        with self._lock:
            if not self._is_made:  # what is there under this name is another's
                return
            if self._writer is not None:
                self._writer.close()
            self._unsealed.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        with self._lock, telling_path(self.path):
            self.refuse_broken()
            try:
                yield
            except BaseException as error:
                self.failure = error
                raise

    def _write_out(self) -> None:
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not batches:
            return
        table = with_nullable_parts(pa.Table.from_batches(batches))
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._unsealed,
                table.schema,
                compression=self._compression,
                use_dictionary=dictionary_columns(batches[0]),
            )
        self._writer.write_table(table, self._row_group)


@contextmanager
def telling_path(path: Path) -> Iterator[None]:
    """Let an error say where it is from, as of a full disk: who writes isn't told."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def force_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk.

    Windows opens no folders, and leaves their names to the file system's own journal;
    and it forces only what was opened for writing.
    """
    if _IS_WINDOWS and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if _IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
