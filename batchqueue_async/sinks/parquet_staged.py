"""A directory of Parquet files that many processes fill, each epoch exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from batchqueue_async._extras import missing
from batchqueue_async._validation import require_int

try:
    import pyarrow  # noqa: F401 - what is imported below needs it
except ModuleNotFoundError as _error:
    raise missing(_error, "a sink of Parquet files", "parquet") from _error

from ._parquet.columns import require_names_that_differ
from ._parquet.directory import ParquetDirectory, Part
from ._parquet.staged_file import StagedFile, force_to_disk
from .checks import FromOptions, require_path
from .epochs import Epoch
from .open_attempts import OpenAttempts
from .rows import require_batches
from .staged import Attempt, Token, rows_of

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetStagedSink(FromOptions):
    """Stages a file per attempt, and publishes an epoch by renaming one folder.

    An epoch becomes the folder `batchqueue_epoch=<query>-<batch>` in `directory`, with
    a file per partition that has rows, and a manifest: the same that `ParquetEpochSink`
    makes. What reads a directory of Parquet files sees published epochs and nothing
    else. If no partition has rows there is a file that says which columns they have.

    Why it is exactly once: attempts write below a folder whose name starts with an
    underscore, which readers pass over. `publish` gathers the files that its tokens
    name, and only those, in a new folder there, adds the manifest, forces that to the
    disk, and renames the folder. It is data and fence in one, and a second rename to
    the same name fails. An attempt that seals looks for the fence afterwards, and
    `publish` removes everything else afterwards: one of the two finds a late file.

    What it costs: no row is written twice. `publish` renames once per file, which is a
    hundred thousand partitions in some seconds on a local disk; a seal and a publish
    wait for the disk. Small partitions make small files. `directory` must be one path
    for all executors and the driver's machine, on a file system where renaming a folder
    is atomic: a disk of one machine, NFS, a cluster file system; not an object store.
    What a driver left in `_staged` that never came back goes after 7 days in which
    nobody wrote to it, with the next `publish` into the directory.

    Args:
        directory: Where the folders go; made when it is missing.
        row_group: How many rows an attempt keeps in memory, and writes at a time.
        compression: As pyarrow's `ParquetWriter` takes it. Columns whose values repeat
            in the first rows get a dictionary, too.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind, or has a wrong value.
    """

    # So that a directory whose epochs are all empty can be read, too.
    wants_columns = True

    def __init__(
        self,
        directory: str | Path,
        *,
        row_group: int = 131_072,
        compression: str = "zstd",
    ) -> None:
        require_path("directory", directory)
        require_int("row_group", row_group, at_least=1)
        # As messages name it.
        self.target: str = f"directory {Path(directory)}"
        self._directory = ParquetDirectory(directory, "_staged", row_group, compression)
        self._attempts = OpenAttempts[StagedFile]()

    async def announce(self, epoch: Epoch, run: str, /) -> None:
        """Make the run's folder: once it is gone, so is the run."""
        await to_thread.run_sync(self._directory.begin_run, epoch, run)

    async def stage(self, attempt: Attempt, items: list[pa.RecordBatch], /) -> None:
        """Add the rows to the attempt's file.

        Raises:
            OSError: The directory can't be written; for one, the run was announced,
                and is over.
            TypeError: An item is no record batch.
            ValueError: The record batches' columns differ, or one has the name of the
                folders' key, or that of another; or in another case of letters, which
                Spark reads only if the session is case-sensitive.
        """
        with self._attempts.staging(attempt) as file:
            require_batches(items)
            if items and file is None:
                await self._begin(attempt, items)
            elif items and file is not None:
                await to_thread.run_sync(file.write, items)

    async def _begin(self, attempt: Attempt, items: list[pa.RecordBatch]) -> None:
        names = items[0].schema.names
        await to_thread.run_sync(self._directory.require_names, names)
        require_names_that_differ(names, exact=attempt.is_case_sensitive)
        epoch, run = attempt.epoch, attempt.run
        if not attempt.is_announced:
            await to_thread.run_sync(self._directory.begin_run, epoch, run)
        file = self._directory.new_file(epoch, run, attempt.name)
        self._attempts[attempt] = file
        await to_thread.run_sync(file.write, items)
        # If a `publish` missed the file, its fence was there before the file was.
        await self._leave_if_published(attempt)

    async def seal(self, attempt: Attempt, /) -> Token:
        """Give the file its name; a published epoch's, or a discarded run's, goes.

        Raises:
            OSError: The file can't be written; for one, the run was discarded, or the
                epoch was published without it.
        """
        file = self._attempts.get(attempt)
        if file is None:
            return Token(attempt, 0)
        await to_thread.run_sync(file.seal)
        await to_thread.run_sync(force_to_disk, file.path.parent)
        if await self._leave_if_published(attempt):
            return Token(attempt, 0)
        self._attempts.end(attempt)
        place = file.path.relative_to(self._directory.path)
        return Token(attempt, file.rows, "\0".join([str(place), *file.columns]))

    async def abandon(self, attempt: Attempt, /) -> None:
        """Delete the attempt's file."""
        file = self._attempts.end(attempt)
        if file is not None:
            await to_thread.run_sync(file.remove)

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        """Make the epoch's folder appear in one rename."""
        tokens = [*tokens]  # a generator would be empty the second time
        rows_of(epoch, tokens)
        parts = [self._part(token) for token in tokens if token.place]
        return await to_thread.run_sync(self._directory.publish, epoch, parts)

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        """Delete the run's files; what it still writes can't be sealed."""
        await to_thread.run_sync(self._directory.clear_run, epoch, run)

    async def is_published(self, epoch: Epoch, /) -> bool:
        """Return whether the epoch's folder is there."""
        return await to_thread.run_sync(self._directory.is_published, epoch)

    async def close(self) -> None:
        """Delete the files that aren't sealed."""
        while (ended := self._attempts.end_any()) is not None:
            await to_thread.run_sync(ended[1].remove)

    def folder(self, epoch: Epoch) -> Path:
        """Return the epoch's folder, which is there if the epoch is published."""
        return self._directory.folder(epoch)

    def _part(self, token: Token) -> Part:
        place, *columns = token.place.split("\0")
        path = self._directory.path / place
        # Several may be of one partition: the names of attempts are what differs.
        name = f"part-{token.attempt.partition:06d}-{path.name}"
        return Part(name, path, token.rows, columns)

    async def _leave_if_published(self, attempt: Attempt) -> bool:
        is_over = await self.is_published(attempt.epoch)
        if is_over:
            file = self._attempts.forget(attempt)
            if file is not None:
                await to_thread.run_sync(file.remove)
            await to_thread.run_sync(self._directory.clear, attempt.epoch)
        return is_over
