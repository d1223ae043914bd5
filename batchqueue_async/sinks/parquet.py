"""A directory of Parquet files, each epoch in it exactly once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

from anyio import to_thread

from .attempts import new_name, not_open, prefix
from .checks import require_count
from .epochs import Epoch
from .parquet_attempt import MANIFEST, ParquetAttempt
from .record_batches import RecordBatchReader
from .rows import Row

if TYPE_CHECKING:
    import pyarrow as pa

# Of folders that are being deleted; who deletes them may die meanwhile.
_OVER = "over-"

T = TypeVar("T")
R = TypeVar("R")


class ParquetEpochSink(Generic[T]):
    """Writes each epoch as a folder of Parquet files and a manifest.

    The folder is `epoch=<query>-<batch>` in `directory`. What reads a directory of
    Parquet files (Spark, pyarrow, DuckDB) sees all committed epochs and nothing else,
    with a column `epoch` if it knows such names.

    Why it is exactly once: an attempt's files are written to a folder whose name starts
    with an underscore, which readers pass over. `commit` adds the manifest, forces all
    of it to the disk, and gives the folder its name in one rename. So the folder is
    data and fence in one; a second rename to the same name fails.

    What it costs: no row is written twice. A commit waits for the disk. Files are as
    large as an epoch, so small epochs make small files, which somebody has to merge one
    day. `directory` must be on a file system where renaming a folder is atomic: a disk
    of the machine, not an object store. Rows wait in memory until a row group is full.
    A directory is one table: two sinks for it take the same epoch once between them.

    Items are record batches of pyarrow; with a `schema` also tuples, lists or mappings
    in its order; anything else with `to_row`, too. Blocking calls run in threads, one
    at a time. A `write` that fails or is cancelled makes `commit` raise, since rows
    cannot be taken out of a file again: the epoch has to come again.

    Args:
        directory: Where the folders go; made when it is missing.
        schema: Of the files; None for that of an epoch's first record batch.
        to_row: Makes a row of an item.
        row_group: How many rows are written, and kept in memory, at a time.
        compression: As pyarrow's `ParquetWriter` takes it.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument has a wrong value.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        schema: pa.Schema | None = None,
        to_row: Callable[[T], Row] | None = None,
        row_group: int = 131_072,
        compression: str = "zstd",
    ) -> None:
        require_count("row_group", row_group, at_least=1)
        self._directory = Path(directory)
        self._reader = RecordBatchReader(schema, to_row)
        self._row_group = row_group
        self._compression = compression
        self._attempts: dict[Epoch, ParquetAttempt] = {}
        self._lock = threading.Lock()

    async def begin(self, epoch: Epoch) -> None:
        """Start an attempt; remove what earlier ones left."""
        await self.abort(epoch)
        self._attempts[epoch] = await self._run(partial(self._begin, epoch))

    async def write(self, epoch: Epoch, items: list[T]) -> None:
        """Add the items' rows to the attempt.

        Raises:
            BatchQueueError: The epoch was not begun, or one of its writes has failed.
            TypeError: An item is nothing that a row can be made of.
            ValueError: A row does not fit the schema.
        """
        attempt = self._attempt(epoch)
        try:
            await self._run(lambda: attempt.write(self._reader.batches(items)))
        except BaseException as error:
            attempt.break_off(error)
            raise

    async def commit(self, epoch: Epoch) -> None:
        """Finish the files, and make the folder appear in one rename.

        Raises:
            BatchQueueError: The epoch was not begun, or one of its writes has failed.
            OSError: The directory cannot be written.
        """
        attempt = self._attempt(epoch)
        await self._run(lambda: attempt.publish(epoch, self.folder(epoch)))
        await self.abort(epoch)

    async def abort(self, epoch: Epoch) -> None:
        """Remove the attempt's files."""
        attempt = self._attempts.pop(epoch, None)
        if attempt is not None:
            await self._run(attempt.discard)

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return whether the epoch's folder is there."""
        return await self._run((self.folder(epoch) / MANIFEST).exists)

    def folder(self, epoch: Epoch) -> Path:
        """Return the epoch's folder, which is there if the epoch is committed."""
        query = quote(epoch.query, safe="")
        return self._directory / f"epoch={query}-{epoch.batch:08d}"

    def _attempt(self, epoch: Epoch) -> ParquetAttempt:
        attempt = self._attempts.get(epoch)
        if attempt is None:
            raise not_open(epoch)
        return attempt

    def _begin(self, epoch: Epoch) -> ParquetAttempt:
        staging = self._directory / "_staging"
        staging.mkdir(parents=True, exist_ok=True)
        # Of attempts that died with their process. One that lives on finds its folder
        # gone: renamed first, or it could give its name to what is half deleted.
        for left_behind in staging.glob(f"{prefix(epoch)}*"):
            with suppress(FileNotFoundError):
                left_behind.rename(staging / f"{_OVER}{uuid4().hex}")
        for over in staging.glob(f"{_OVER}*"):
            shutil.rmtree(over, ignore_errors=True)
        return ParquetAttempt(
            staging / new_name(epoch), self._row_group, self._compression
        )

    async def _run(self, work: Callable[[], R]) -> R:
        return await to_thread.run_sync(self._run_here, work)

    def _run_here(self, work: Callable[[], R]) -> R:
        # A cancelled call leaves its thread at work; the next one waits for it here.
        with self._lock:
            return work()
