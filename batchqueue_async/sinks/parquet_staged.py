"""A directory of Parquet files that many processes fill, each epoch exactly once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote
from uuid import uuid4

from anyio import to_thread

from .checks import refuse, require_count
from .epochs import Epoch
from .parquet_staged_file import StagedFile
from .parquet_staging import ParquetStaging, make_folder
from .row_groups import force_to_disk
from .staged import Attempt, StagedRowsMissing, Token, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

_MANIFEST = "_manifest.json"


class ParquetStagedSink:
    """Stages a file per attempt, and publishes an epoch by renaming one folder.

    An epoch becomes the folder `epoch=<query>-<batch>` in `directory`, with a file per
    partition that has rows, and a manifest: the same that `ParquetEpochSink` makes.
    What reads a directory of Parquet files sees published epochs and nothing else.

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
        compression: As pyarrow's `ParquetWriter` takes it.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument has a wrong value.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        row_group: int = 131_072,
        compression: str = "zstd",
    ) -> None:
        require_count("row_group", row_group, at_least=1)
        self._directory = Path(directory)
        self._staging = ParquetStaging(self._directory / "_staged")
        self._row_group = row_group
        self._compression = compression
        self._open: dict[str, StagedFile] = {}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Make one from the data source's options: `directory`, `compression`."""
        if not options.get("directory"):
            refuse("directory", "given as an option", options.get("directory"))
        return cls(options["directory"], compression=options.get("compression", "zstd"))

    async def announce(self, epoch: Epoch, run: str, /) -> None:
        """Make the run's folder: once it is gone, so is the run.

        Raises:
            OSError: The directory can't be written.
        """
        folder = self._staging.folder(epoch, run)
        await to_thread.run_sync(make_folder, folder)

    async def stage(self, attempt: Attempt, items: list[pa.RecordBatch], /) -> None:
        """Add the rows to the attempt's file.

        Raises:
            OSError: The directory can't be written; for one, the run was announced,
                and is over.
            ValueError: The record batches' columns differ.
        """
        file = self._open.get(attempt.name)
        is_new = file is None
        if file is None:
            folder = self._staging.folder(attempt.epoch, attempt.run)
            if not attempt.is_announced:
                await to_thread.run_sync(make_folder, folder)
            path = folder / f"{attempt.name}.parquet"
            file = StagedFile(path, self._row_group, self._compression)
            self._open[attempt.name] = file
        await to_thread.run_sync(file.write, items)
        if is_new:
            # A `publish` that did not see the file has added the fence before.
            await self._leave_if_published(attempt)

    async def seal(self, attempt: Attempt, /) -> Token:
        """Give the file its name; a published epoch's, or a discarded run's, goes.

        Raises:
            OSError: The file can't be written; for one, the run was discarded.
        """
        file = self._open.get(attempt.name)
        if file is None or not file.rows:
            await self.abandon(attempt)
            return Token(attempt, 0)
        await to_thread.run_sync(file.seal)
        if await self._leave_if_published(attempt):
            return Token(attempt, 0)
        del self._open[attempt.name]
        return Token(attempt, file.rows, str(file.path.relative_to(self._directory)))

    async def abandon(self, attempt: Attempt, /) -> None:
        """Delete the attempt's file."""
        file = self._open.pop(attempt.name, None)
        if file is not None:
            await to_thread.run_sync(file.remove)

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        """Make the epoch's folder appear in one rename.

        Raises:
            StagedRowsMissing: A sealed file isn't there.
            OSError: The directory can't be written.
        """
        return await to_thread.run_sync(self._publish, epoch, tokens)

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        """Delete the run's files; what it still writes can't be sealed."""
        await to_thread.run_sync(self._staging.remove_run, epoch, run)

    async def is_published(self, epoch: Epoch, /) -> bool:
        """Return whether the epoch's folder is there."""
        return await to_thread.run_sync((self.folder(epoch) / _MANIFEST).exists)

    async def close(self) -> None:
        """Delete the files that aren't sealed."""
        while self._open:
            _, file = self._open.popitem()
            await to_thread.run_sync(file.remove)

    def folder(self, epoch: Epoch) -> Path:
        """Return the epoch's folder, which is there if the epoch is published."""
        query = quote(epoch.query, safe="")
        return self._directory / f"epoch={query}-{epoch.batch:08d}"

    def _publish(self, epoch: Epoch, tokens: Sequence[Token]) -> bool:
        rows, target = rows_of(epoch, tokens), self.folder(epoch)
        is_new = not target.exists()
        if is_new:
            gathered = self._staging.folder(epoch, f"publish {uuid4().hex}")
            try:
                make_folder(gathered)
                files = self._gather(epoch, tokens, gathered)
                _write_manifest(gathered, epoch, rows, files)
                gathered.rename(target)
            except (OSError, StagedRowsMissing):
                # Another process may have published the epoch, and cleaned up, since.
                if not target.exists():
                    raise
                is_new = False
            force_to_disk(self._directory)
        self._staging.remove(epoch)
        self._staging.remove_old()
        return is_new

    async def _leave_if_published(self, attempt: Attempt) -> bool:
        is_over = await self.is_published(attempt.epoch)
        if is_over:
            await self.abandon(attempt)
            await to_thread.run_sync(self._staging.remove, attempt.epoch)
        return is_over

    def _gather(self, epoch: Epoch, tokens: Sequence[Token], folder: Path) -> list[str]:
        files = []
        for token in (token for token in tokens if token.rows):
            name = f"part-{token.attempt.partition:06d}-{token.attempt.name[:8]}"
            try:
                (self._directory / token.place).rename(folder / f"{name}.parquet")
            except FileNotFoundError as error:
                raise StagedRowsMissing(epoch, token.rows, 0) from error
            files.append(f"{name}.parquet")
        return files


def _write_manifest(folder: Path, epoch: Epoch, rows: int, files: list[str]) -> None:
    content = {"query": epoch.query, "batch": epoch.batch, "rows": rows, "files": files}
    path = folder / _MANIFEST
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    force_to_disk(path)
    force_to_disk(folder)
