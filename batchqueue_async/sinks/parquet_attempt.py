"""One attempt at an epoch: a folder that gets its final name at the end."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from batchqueue_async import BatchQueueError
from batchqueue_async._wording import reason

from .epochs import Epoch
from .row_groups import RowGroups, force_to_disk

if TYPE_CHECKING:
    import pyarrow as pa

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
        self._groups = RowGroups(folder / _FILE, row_group, compression)
        self._failure: BaseException | None = None
        folder.mkdir()

    def break_off(self, error: BaseException) -> None:
        """Let `publish` refuse: something is missing, or is there by half."""
        self._failure = self._failure or error

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows, in row groups of the wanted size."""
        self._refuse_broken()
        self._groups.write(batches)

    def publish(self, epoch: Epoch, target: Path) -> None:
        """Finish the file and give the folder its name, unless another has it."""
        self._refuse_broken()
        self._groups.finish()
        if self._groups.is_begun:
            force_to_disk(self._folder / _FILE)
        self._write_manifest(epoch)
        force_to_disk(self._folder)
        try:
            self._folder.rename(target)
        except OSError as error:
            # Another attempt has committed the epoch: this one's files go.
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
        force_to_disk(target.parent)

    def discard(self) -> None:
        """Remove the folder; nothing to do if it has its final name."""
        self._groups.abandon()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_manifest(self, epoch: Epoch) -> None:
        manifest = {
            "query": epoch.query,
            "batch": epoch.batch,
            "rows": self._groups.rows,
            "files": [_FILE] if self._groups.is_begun else [],
        }
        path = self._folder / MANIFEST
        path.write_text(json.dumps(manifest) + "\n", encoding="utf-8")
        force_to_disk(path)

    def _refuse_broken(self) -> None:
        if self._failure is not None:
            why = reason(self._failure)
            msg = f"a write of this epoch has failed ({why}): start again"
            raise BatchQueueError(msg) from self._failure
